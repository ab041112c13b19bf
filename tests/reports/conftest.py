"""Public bug reports as tests: each under the number of its row, each with its kin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sparse3d import _registry

EMULATED_AT_NIGHT = (
    "test_row_25_stand_ins[metal]",
    "test_row_32_each_point_once[metal-symmetric 2048]",
    "test_row_32_stand_ins_cover_distinct_points[metal]",
    "test_row_36_k_neighbours_equal_brute_force[metal]",
    "test_row_40_a_label_for_every_point_in_scan_order[metal]",
)
"""What takes the emulator of Metal longest; each of these rows has quicker tests besides."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.name in EMULATED_AT_NIGHT and not torch.backends.mps.is_available():
            item.add_marker(pytest.mark.nightly)


@pytest.fixture
def engine(backend: str) -> Iterator[str]:
    """The whole test, gradients included, on one backend."""
    with _registry.force(backend):
        yield backend
