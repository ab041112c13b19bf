"""Point operator tests run on every backend that works here, with clouds hard in different ways."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator

import pytest
from point_oracle import SHAPES

from sparse3d import _registry


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    """One kind of cloud at a time."""
    return str(request.param)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """A backend, forced for the whole test; skipped with its reason where it cannot work."""
    name = str(request.param)
    if name == "metal" and importlib.util.find_spec("metal_emu") is not None:
        enable = getattr(importlib.import_module("metal_emu"), "enable", None)
        if enable is not None:
            option = request.config.getoption
            enable(option("--metal-front"), option("--metal-seed"))
    if name != "reference":
        reason = _registry.load(name)
        if reason is not None:
            pytest.skip(f"{name}: {reason}")
    with _registry.force(name):
        yield name
