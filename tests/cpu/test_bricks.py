"""Submanifold maps in 3-D, whose neighbours are found in bricks of 8 x 8 x 8 cells: every shape of
kernel, order of rows and extent at which another way is taken must give the reference's map."""

from __future__ import annotations

import pytest
import torch

from sparse3d import _registry
from sparse3d.cpu import _library
from sparse3d.kernel_map import Coordinates
from sparse3d.ops import kernel_map as M

INT_MAX = 2**31 - 1
PART = 1 << 13  # rows below which a part of them is not worth a thread


def rows_of(sites, batch=0):
    return torch.nn.functional.pad(sites.int(), (1, 0), value=batch).contiguous()


def box(*sizes):
    return torch.cartesian_prod(*[torch.arange(size, dtype=torch.int32) for size in sizes])


def shuffled(rows):
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]


def same_as_reference(both, coords, kernel=(3, 3, 3), dilation=(1, 1, 1)):
    got, wanted = both(M.kernel_map_submanifold, coords, None, list(kernel), list(dilation))
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("path", _library.paths())
@pytest.mark.parametrize(
    ("kernel", "dilation"),
    [
        ((3, 3, 3), (1, 1, 1)),
        ((1, 1, 1), (1, 1, 1)),
        ((1, 5, 3), (1, 2, 3)),
        ((3, 3, 3), (8, 8, 8)),  # as far as the next brick reaches ...
        ((3, 3, 3), (8, 9, 8)),  # ... and one further
        ((17, 1, 3), (1, 1, 8)),
        ((1, 17, 3), (1, 1, 4)),
        ((3, 1, 17), (8, 1, 1)),
        ((3, 1, 19), (1, 1, 1)),
        ((5, 5, 5), (4, 4, 4)),
    ],
)
def test_kernels(scene, both, kernel, dilation, path):
    with _library.use_path(path):
        same_as_reference(both, scene(400, 3, low=-11, high=12), kernel, dilation)


@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 128, 129, 192, 193, 4095, 4096, 4097])
@pytest.mark.parametrize("spacing", [1, 3, 9])
def test_numbers_of_rows(both, rows, spacing):
    """From full bricks to one site a brick, of which too many take another way."""
    sites = shuffled(box(17, 17, 17)[:rows]) * spacing - 20
    same_as_reference(both, rows_of(sites))


@pytest.mark.parametrize("corner", [-INT_MAX - 1, INT_MAX - 11])
def test_ends_of_the_range(both, corner):
    sites = (shuffled(box(12, 12, 12)).long() + corner).int()
    same_as_reference(both, rows_of(sites), (3, 3, 3), (1, 2, 8))


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("beyond", [0, 1])
def test_extents(both, batches, beyond):
    """Keys of 63 bits and of more: an axis of 2^21 bricks, those around the sites among them."""
    far = 8 * (2**21 - 3) + 7 + beyond * 8
    near = box(3, 3, 3)
    sites = torch.cat([near, far - near])
    coords = torch.cat([rows_of(sites, batch) for batch in range(batches)])
    same_as_reference(both, shuffled(coords))


def test_extreme_batches(both):
    coords = torch.cat([rows_of(box(3, 3, 3), batch) for batch in (-INT_MAX - 1, -1, INT_MAX)])
    same_as_reference(both, coords)


def test_repeated_rows(both):
    coords = rows_of(box(6, 7, 8))
    same_as_reference(both, torch.cat([coords, coords[5:6]]))


def in_two_rounds(sites):
    """All bricks in the first half of the rows, and again in the second."""
    first = (sites.sum(1) % 2).bool()
    return torch.cat([sites[first], sites[~first]])


def corners(bricks):
    """Two sites in every brick: the parts of the rows hold more bricks than there may be."""
    first = 8 * box(bricks, bricks, bricks)
    return torch.cat([first, first + 1])


ORDERS = {
    "rows in order": lambda: box(26, 26, 26),
    "fewer rows than two parts": lambda: box(1, 128, 128)[:-1],
    "two parts": lambda: box(1, 128, 128),
    "parts that share bricks": lambda: in_two_rounds(box(30, 30, 30)),
    "parts of too many bricks": lambda: corners(21),
    "no order": lambda: shuffled(box(28, 28, 28)),
    "few rows a brick": lambda: 9 * box(26, 26, 26),
    "a row of the first part again": lambda: torch.cat([box(28, 28, 28), box(1, 1, 1)]),
}


@pytest.mark.parametrize("order", ORDERS)
def test_same_bytes_on_any_thread_count(both, each_thread_count, order):
    coords = rows_of(ORDERS[order]() - 7)
    assert len(coords) >= 2 * PART - 1
    same_as_reference(both, coords)

    def run():
        with _registry.force("cpu"), _registry.strict():
            return M.kernel_map_submanifold(coords, None, [3, 3, 3], [1, 1, 1])

    each_thread_count(run)


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_a_table_at_hand_changes_nothing(scene, both, ndim):
    coords = scene(300, ndim)
    without = both(M.kernel_map_submanifold, coords, None, [3] * ndim, [1] * ndim)
    with _registry.force("cpu"):
        table = M.coordinate_table(coords)
        found = M.kernel_map_submanifold(coords, table, [3] * ndim, [1] * ndim)
    for result in zip(found, *without, strict=True):
        assert torch.equal(result[0], result[1])
        assert torch.equal(result[0], result[2])


def test_no_table_is_made_where_none_is_needed(scene, monkeypatch):
    coords = scene(300, 3)
    sites = Coordinates(coords, (20, 20, 20), 2)
    sites.trust_distinct()

    def fail(*_):
        raise AssertionError("a table")

    monkeypatch.setattr("sparse3d.kernel_map.build_table", fail)
    with _registry.force("cpu"):
        assert len(sites.submanifold((3, 3, 3), (1, 1, 1))) >= len(coords)
