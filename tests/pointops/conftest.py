"""Point operator tests run on every backend that works here, with clouds hard in different ways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from point_oracle import SHAPES

from sparse3d import _registry


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    """One kind of cloud at a time."""
    return str(request.param)


@pytest.fixture(autouse=True)
def _forced(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs a test that asks for a backend on it.

    The fixture `backend` lives as long as the session, so that the forcing has to be its own.
    """
    if "backend" not in request.fixturenames:
        yield
        return
    with _registry.force(request.getfixturevalue("backend")):
        yield
