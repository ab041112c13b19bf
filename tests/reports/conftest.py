"""Public bug reports as tests: each under the number of its row, each with its kin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparse3d import _registry


@pytest.fixture
def engine(backend: str) -> Iterator[str]:
    """The whole test, gradients included, on one backend."""
    with _registry.force(backend):
        yield backend
