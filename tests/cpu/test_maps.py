"""Coordinates and kernel maps: exact integers, equal to the reference's in every entry."""

from __future__ import annotations

import itertools

import pytest
import torch

from sparse3d import _registry
from sparse3d.cpu import _library
from sparse3d.ops import coordinates as C
from sparse3d.ops import kernel_map as M

SIZES = (0, 1, 31, 32, 33, 300)
INT_MAX = 2**31 - 1


def equal(got, wanted):
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


def table(coords):
    """Each backend's own table of the same rows."""
    with _registry.force("cpu"):
        mine = C.coordinate_table(coords)
    with _registry.force("reference"):
        return mine, C.coordinate_table(coords)


def compare(op, coords, *args):
    mine, theirs = table(coords)
    with _registry.force("cpu"), _registry.strict():
        got = op(coords, mine, *args)
    with _registry.force("reference"):
        equal(got, op(coords, theirs, *args))


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("distinct", [True, False])
def test_unique_and_lookup(scene, both, rows, ndim, distinct):
    coords = scene(rows, ndim, low=-3, high=3, distinct=distinct)
    equal(*both(C.coordinate_unique, coords))
    queries = torch.cat([scene(200, ndim, low=-6, high=6, distinct=False), coords])
    mine, theirs = table(coords)
    with _registry.force("cpu"):
        got = C.coordinate_lookup(coords, mine, queries)
    with _registry.force("reference"):
        assert torch.equal(got, C.coordinate_lookup(coords, theirs, queries))


def test_unique_of_one_point_many_times(both):
    equal(*both(C.coordinate_unique, torch.zeros((20_000, 4), dtype=torch.int32)))


def test_extreme_coordinates(both):
    ends = torch.tensor([-(2**31), -(2**31) + 1, 0, INT_MAX - 1, INT_MAX], dtype=torch.int32)
    sites = torch.cartesian_prod(ends, ends)
    coords = torch.cat([torch.zeros((len(sites), 1), dtype=torch.int32), sites], 1)
    equal(*both(C.coordinate_unique, coords))
    compare(M.kernel_map_submanifold, coords, [3, 3], [1, 1])
    compare(M.kernel_map_given, coords, coords, [3, 3], [2, 2], [1, 1], [1, 1])
    compare(M.kernel_map_floor, coords, [3, 3], [2, 2], [1, 1], [1, 1])
    for transposed in (False, True):
        args = ([3, 3], [2, 2], [1, 1], [1, 1], [], transposed)
        equal(*both(M.kernel_map_footprint, coords, *args))


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("distinct", [True, False])
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_submanifold(scene, rows, ndim, distinct, kernel):
    if ndim == 4 and kernel == 5:
        kernel = 3
    coords = scene(rows, ndim, distinct=distinct)
    for dilation in (1, 2):
        compare(M.kernel_map_submanifold, coords, [kernel] * ndim, [dilation] * ndim)


def test_submanifold_of_unequal_axes(scene):
    compare(M.kernel_map_submanifold, scene(500, 3), [1, 5, 3], [2, 1, 3])


@pytest.mark.parametrize("path", _library.paths())
@pytest.mark.parametrize("kernel", [3, 5])
def test_submanifold_of_a_filled_cube(kernel, path):
    """Many chunks of rows, more pairs a row than a scan has: the lists of what is found grow."""
    sites = torch.cartesian_prod(*[torch.arange(24, dtype=torch.int32)] * 3)
    sites = sites[torch.randperm(len(sites), generator=torch.Generator().manual_seed(0))]
    coords = torch.nn.functional.pad(sites, (1, 0)).contiguous()
    with _library.use_path(path):
        compare(M.kernel_map_submanifold, coords, [kernel] * 3, [1] * 3)


def test_submanifold_of_a_long_line():
    """Beyond a million rows, several chunks of rows share a list of mirrored pairs."""
    rows = 1_100_000
    sites = torch.randperm(rows, generator=torch.Generator().manual_seed(0)).int()
    coords = torch.nn.functional.pad(sites[:, None], (1, 0)).contiguous()
    with _registry.force("cpu"), _registry.strict():
        src, dst, splits = M.kernel_map_submanifold(coords, C.coordinate_table(coords), [3], [1])
    row_of = torch.empty(rows, dtype=torch.int32)
    row_of[sites.long()] = torch.arange(rows, dtype=torch.int32)
    for tap in range(3):
        begin, end = splits[tap : tap + 2].tolist()
        wanted = sites + tap - 1
        there = (wanted >= 0) & (wanted < rows)
        assert torch.equal(dst[begin:end], there.nonzero()[:, 0].int())
        assert torch.equal(src[begin:end], row_of[wanted[there].long()])


@pytest.mark.parametrize("path", _library.paths())
def test_neighbours_across_blocks(path):
    """Sites on both sides of every border of the table's blocks, negative ones and huge ones."""
    line = torch.tensor([-513, -512, -9, -8, -1, 0, 7, 8, 31, 32, 511, 512, 2**30 - 1, 2**30])
    for ndim in (1, 2, 3, 4):
        axes = [line.int()] * min(ndim, 3) + [torch.tensor([-1, 0, 3, 4]).int()] * (ndim == 4)
        sites = torch.cartesian_prod(*axes).reshape(-1, ndim)
        sites = sites[torch.randperm(len(sites), generator=torch.Generator().manual_seed(ndim))]
        coords = torch.nn.functional.pad(sites[:1500], (1, 0)).contiguous()
        with _library.use_path(path):
            compare(M.kernel_map_submanifold, coords, [3] * ndim, [1] * ndim)


GEOMETRIES = [  # kernel, stride, padding, dilation
    (2, 2, 0, 1),
    (3, 2, 1, 1),
    (3, 1, 1, 1),
    (3, 3, 0, 2),
    (1, 2, 0, 1),
    (4, 3, 2, 1),
    (1, 1, 0, 1),
]


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("numbers", GEOMETRIES)
@pytest.mark.parametrize("distinct", [True, False])
def test_created_and_given(scene, both, rows, ndim, numbers, distinct):
    if ndim == 4 and numbers[0] > 3:
        pytest.skip("256 taps of the torch reference")
    coords = scene(rows, ndim, distinct=distinct)
    lists = [[number] * ndim for number in numbers]
    compare(M.kernel_map_floor, coords, *lists)
    compare(M.kernel_map_given, coords, scene(300, ndim, low=-3, high=4), *lists)
    for transposed, grid in itertools.product((False, True), ([], [4] * ndim)):
        equal(*both(M.kernel_map_footprint, coords, *lists, grid, transposed))


def test_footprint_of_unequal_axes(scene, both):
    args = ([1, 3, 2], [1, 2, 3], [0, 1, 1], [1, 2, 1])
    for transposed in (False, True):
        equal(*both(M.kernel_map_footprint, scene(400, 3), *args, [], transposed))


@pytest.mark.parametrize("path", _library.paths())
def test_paths_agree(scene, path):
    coords = scene(3000, 3, low=-12, high=12)
    with _library.use_path(path):
        compare(M.kernel_map_submanifold, coords, [3, 3, 3], [1, 1, 1])


def test_same_bytes_on_any_thread_count(scene, each_thread_count):
    coords = scene(30_000, 3, low=-30, high=30, batches=3)
    doubled = torch.cat([coords, coords[::3]])
    ones, twos, threes = [1] * 3, [2] * 3, [3] * 3

    def run():
        with _registry.force("cpu"):
            own = C.coordinate_table(coords)
            repeated = C.coordinate_table(doubled)
            return [
                own,
                repeated,
                *C.coordinate_unique(doubled),
                *M.kernel_map_submanifold(coords, own, threes, ones),
                *M.kernel_map_submanifold(doubled, repeated, threes, ones),
                *M.kernel_map_footprint(coords, threes, twos, ones, ones, [], False),
                *M.kernel_map_footprint(coords, twos, twos, [0] * 3, ones, [], True),
                *M.kernel_map_floor(coords, own, twos, twos, [0] * 3, ones),
                *M.kernel_map_floor(coords, own, threes, twos, ones, ones),
            ]

    each_thread_count(run)
