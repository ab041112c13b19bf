"""Pools, segments, interpolation and dense grids against the torch references."""

from __future__ import annotations

import pytest
import torch

from sparse3d import _registry
from sparse3d.ops import coordinates as C
from sparse3d.ops import dense as G
from sparse3d.ops import kernel_map as M
from sparse3d.ops import pool as P
from sparse3d.ops import segment as S
from sparse3d.ops import voxelize as X

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SIZES = (0, 1, 31, 32, 33, 1500)


def close(got, wanted):
    """Sums: 1e-6 of the largest entry, and one unit in the last place of halves."""
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    if wanted.numel():
        unit = torch.finfo(got.dtype).eps if got.dtype.itemsize == 2 else 0.0
        mine, theirs = got.double(), wanted.double()
        limit = (1e-14 if got.dtype == torch.float64 else 1e-6) * theirs.abs().max()
        assert ((mine - theirs).abs() <= unit * theirs.abs() + limit).all()


def values(shape, dtype, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def pool_map(coords, kernel=3):
    ndim = coords.shape[1] - 1
    lists = ([kernel] * ndim, [2] * ndim, [kernel // 2] * ndim, [1] * ndim)
    with _registry.force("reference"):
        out, *pairs = M.kernel_map_footprint(coords, *lists, [], False)
    return pairs, len(out)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("ndim", [1, 3])
def test_pools(scene, both, rows, ndim, dtype):
    coords = scene(rows, ndim, low=-9, high=9)
    (src, dst, splits), rows_out = pool_map(coords)
    # Few distinct values: ties are many.
    x = values((len(coords), 5), dtype).mul(2).round()
    close(*both(P.pool_sum, x, src, dst, splits, rows_out))
    close(*both(P.pool_sum, values((rows_out, 3), dtype), dst, src, splits, len(coords)))
    mine, theirs = both(P.pool_max, x, src, dst, splits, rows_out)
    assert torch.equal(mine[0], theirs[0])
    assert torch.equal(mine[1], theirs[1])
    assert mine[1].dtype == torch.int32
    grad = values((rows_out, 5), dtype, 2)
    close(*both(P.pool_max_grad, grad, theirs[1], src, dst, splits, len(coords)))


def test_pool_max_of_nan_and_lonely_rows(scene, both):
    coords = scene(200, 2)
    (src, dst, splits), rows_out = pool_map(coords)
    x = values((len(coords), 20), torch.float32)
    x[::7], x[3] = float("nan"), float("-inf")
    for mine, theirs in zip(*both(P.pool_max, x, src, dst, splits, rows_out + 3), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("num", [1, 7, 900])
def test_segments(both, rows, num, dtype):
    ids = torch.randint(0, num, (rows,), generator=torch.Generator().manual_seed(rows))
    x = values((rows, 6), dtype)
    close(*both(S.segment_sum, x, ids, num))
    x = x.mul(2).round()
    for mine, theirs in zip(*both(S.segment_max, x, ids, num), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)


def test_segment_max_of_nan(both):
    x = values((2000, 3), torch.float32)
    x[600, 0], x[1300, 0], x[5, 1] = float("nan"), float("nan"), float("-inf")
    ids = torch.arange(2000) // 1900
    for mine, theirs in zip(*both(S.segment_max, x, ids, 3), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", SIZES)
def test_interpolation(scene, both, rows, ndim, dtype):
    coords = scene(rows, ndim)
    generator = torch.Generator().manual_seed(ndim)
    points = torch.rand(rows, 1 + ndim, generator=generator) * 14 - 7
    points[:, 0] = torch.randint(0, 2, (rows,), generator=generator)
    points = points.to(torch.float64 if dtype == torch.float64 else torch.float32)
    found = []
    for backend in ("cpu", "reference"):
        with _registry.force(backend):
            found.append(X.trilinear_map(coords, C.coordinate_table(coords), points))
    (mine, weight), (theirs, wanted) = found
    assert torch.equal(mine, theirs)
    close(weight, wanted)
    x, weight = values((len(coords), 5), dtype), wanted.to(dtype)
    close(*both(X.interpolate, x, theirs, weight))
    close(*both(X.interpolate, x, theirs, wanted))
    close(*both(X.interpolate_grad, values((rows, 5), dtype), theirs, weight, len(coords)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", SIZES)
def test_dense(scene, both, rows, ndim, dtype):
    coords = scene(rows, ndim, low=0, high=6, distinct=False)
    x = values((rows, 3), dtype)
    mine, theirs = both(G.dense_scatter, x, coords, 2, [6] * ndim)
    assert torch.equal(mine, theirs)
    mine, theirs = both(G.dense_gather, theirs, coords)
    assert torch.equal(mine, theirs)


def test_same_bytes_on_any_thread_count(scene, each_thread_count):
    coords = scene(20_000, 3, low=0, high=30)
    rows = len(coords)
    (src, dst, splits), rows_out = pool_map(coords)
    x, g = values((rows, 9), torch.float32), values((rows_out, 9), torch.float32, 1)
    ids = torch.randint(0, 5, (rows,), generator=torch.Generator().manual_seed(1))
    points = coords + torch.rand(rows, 4, generator=torch.Generator().manual_seed(2))
    points[:, 0] = coords[:, 0]

    def run():
        with _registry.force("cpu"):
            top, arg = P.pool_max(x, src, dst, splits, rows_out)
            corners, weights = X.trilinear_map(coords, C.coordinate_table(coords), points)
            return [
                P.pool_sum(x, src, dst, splits, rows_out),
                P.pool_sum(g, dst, src, splits, rows),
                top,
                arg,
                P.pool_max_grad(g, arg, src, dst, splits, rows),
                S.segment_sum(x, ids, 5),
                *S.segment_max(x, ids, 5),
                corners,
                weights,
                X.interpolate(x, corners, weights),
                X.interpolate_grad(x, corners, weights, rows),
                G.dense_scatter(x, coords, 2, [30] * 3),
            ]

    each_thread_count(run)
