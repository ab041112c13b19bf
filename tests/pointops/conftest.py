"""Clouds that are hard in different ways, and every backend that works here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from point_oracle import SHAPES

from sparse3d import _registry


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    """One kind of cloud at a time."""
    return str(request.param)


@pytest.fixture(params=["reference", "cpu", "metal"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every backend, forced; one that cannot work here is skipped with its own reason."""
    name = str(request.param)
    if name != "reference":
        reason = _registry.load(name)
        if reason is not None:
            pytest.skip(f"backend {name}: {reason}")
    with _registry.force(name):
        yield name
