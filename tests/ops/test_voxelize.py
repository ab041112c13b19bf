"""Points to voxels and back, against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
import torch
from contract.engine import coords_of, on, random
from tolerance import DTYPES, FORWARD, GRADIENT, assert_close, assert_same

from sparse3d._cases.clouds import cloud
from sparse3d.ops import coordinates
from sparse3d.ops import voxelize as ops

INTERPOLATION = (ops.interpolate, ops.interpolate_grad)


def _points(coords: oracle.Array, rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Points near a cloud: some on sites, some between, some far, in a batch or outside of it."""
    rng = np.random.default_rng(2)
    if len(coords):
        points = coords[rng.integers(0, len(coords), rows)].astype(np.float64)
    else:
        points = np.zeros((rows, coords.shape[1]))
    points[rows // 4 :, 1:] += rng.uniform(-1.5, 1.5, (rows - rows // 4, coords.shape[1] - 1))
    points[-3:, 1:] += 100
    points[::11, 0] += 1
    return torch.from_numpy(points).to(dtype)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["empty", "one", "interleaved", "negative", "duplicates"])
def test_corners(name: str, ndim: int, dtype: torch.dtype, backend: str) -> None:
    coords = coords_of(name, ndim)
    points = _points(cloud(name, ndim), 60, dtype)
    with on(backend, ops.trilinear_map):
        rows, weights = ops.trilinear_map(coords, coordinates.coordinate_table(coords), points)
    expected = oracle.trilinear(cloud(name, ndim), points.double().numpy())
    assert rows.dtype == torch.int32
    assert weights.dtype == dtype
    assert_same(rows, expected[0])
    assert_close(weights, expected[1], dtype)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["empty", "interleaved"])
def test_interpolate(name: str, dtype: torch.dtype, backend: str) -> None:
    coords = cloud(name, 3)
    rows, weights = oracle.trilinear(coords, _points(coords, 80).numpy())
    at, share = torch.from_numpy(rows), torch.from_numpy(weights).to(dtype)
    x, grad = random((len(coords), 5), dtype, 1), random((80, 5), dtype, 2)
    with on(backend, *INTERPOLATION):
        out = ops.interpolate(x, at, share)
        back = ops.interpolate_grad(grad, at, share, len(coords))
    assert out.dtype == back.dtype == dtype
    used = share.double().numpy()
    assert_close(out, oracle.interpolate(x.double().numpy(), rows, used), dtype, FORWARD)
    expected = oracle.interpolate_grad(grad.double().numpy(), rows, used, len(coords))
    assert_close(back, expected, dtype, GRADIENT)


def test_absent_corners_do_not_spread_what_row_0_holds(backend: str) -> None:
    x = torch.tensor([[float("nan")], [2.0]])
    rows = torch.tensor([[-1, 1]], dtype=torch.int32)
    share = torch.tensor([[0.5, 0.5]]).requires_grad_()
    with on(backend, *INTERPOLATION):
        out = ops.interpolate(x, rows, share)
        (back,) = torch.autograd.grad(out.sum(), share)
    assert out.tolist() == [[1.0]]
    assert back.tolist() == [[0.0, 2.0]]


def test_derivatives(backend: str) -> None:
    coords = cloud("interleaved", 2)[:9]
    rows, weights = oracle.trilinear(coords, _points(coords, 6).numpy())
    at = torch.from_numpy(rows)
    x = random((len(coords), 2), torch.float64, 1).requires_grad_()
    share = torch.from_numpy(weights).requires_grad_()
    grad = random((6, 2), torch.float64, 2).requires_grad_()

    def forward(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ops.interpolate(v, at, w)  # type: ignore[no-any-return]

    def backward(g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return ops.interpolate_grad(g, at, w, len(coords))  # type: ignore[no-any-return]

    with on(backend, *INTERPOLATION):
        for call, inputs in ((forward, (x, share)), (backward, (grad, share))):
            assert torch.autograd.gradcheck(call, inputs)
            assert torch.autograd.gradgradcheck(call, inputs)


def test_no_voxels_have_gradients_too(backend: str) -> None:
    x = torch.zeros(0, 3, requires_grad=True)
    share = torch.full((4, 8), 0.125, requires_grad=True)
    rows = torch.full((4, 8), -1, dtype=torch.int32)
    with on(backend, *INTERPOLATION):
        out = ops.interpolate(x, rows, share)
        to_x, to_share = torch.autograd.grad(out.sum(), (x, share))
    assert out.shape == (4, 3)
    assert not out.any()
    assert to_x.shape == (0, 3)
    assert not to_share.any()


# --------------------------------------------------------------------------------- public functions


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_devoxelize_trilinear(dtype: torch.dtype, renormalize: bool, backend: str) -> None:
    coords = cloud("interleaved", 3)
    points = _points(coords, 80, torch.float64 if dtype == torch.float64 else torch.float32)
    x = random((len(coords), 4), dtype)
    with on(backend, *INTERPOLATION, ops.trilinear_map):
        out = ops.devoxelize(
            x, coords=torch.from_numpy(coords), points=points, renormalize=renormalize
        )
    rows, weights = oracle.trilinear(coords, points.numpy())
    expected = oracle.interpolate(x.double().numpy(), rows, weights, renormalize)
    assert_close(out, expected, dtype)


def test_devoxelize_nearest(backend: str) -> None:
    coords = cloud("interleaved", 3)
    rows = oracle.nearest(coords, _points(coords, 40).numpy())
    assert (rows < 0).any()
    x = random((len(coords), 4), torch.float32).requires_grad_()
    with on(backend, *INTERPOLATION):
        out = ops.devoxelize(x, torch.from_numpy(rows).long())
        (back,) = torch.autograd.grad(out.sum(), x)
    expected = np.where(rows[:, None] >= 0, x.detach().numpy()[rows], 0)
    assert_same(out, expected)
    assert_same(back[:, 0], np.bincount(rows[rows >= 0], minlength=len(coords)))


@pytest.mark.parametrize("reduce", ["mean", "sum", "max", "first"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_voxelize(dtype: torch.dtype, reduce: str, backend: str) -> None:
    coords = cloud("duplicates", 3)
    x = random((len(coords), 4), dtype)
    with on(backend, coordinates.coordinate_unique):
        voxels = ops.voxelize(x, torch.from_numpy(coords), reduce)
    sites, merged = oracle.coalesce(coords, x.double().numpy(), reduce)
    first, inverse = oracle.unique(coords)
    assert_same(voxels.indices, sites)
    assert_same(voxels.inverse, inverse)
    assert_same(voxels.counts, np.bincount(inverse, minlength=len(first)))
    assert_close(voxels.features, merged, dtype)
    assert voxels.features.dtype == dtype


@pytest.mark.parametrize("rounding", ["floor", "round"])
@pytest.mark.parametrize("origin", [None, [0.3, -2.0, 1.0]])
def test_quantize_in_float32(rounding: str, origin: list[float] | None) -> None:
    """Points on a millimetre grid, so that many lie on voxel borders: the arithmetic decides."""
    rng = np.random.default_rng(3)
    points = (rng.integers(-40000, 40000, (5000, 3)) / 1000).astype(np.float32)
    size = [0.05, 0.1, 0.25]
    cells = ops.quantize(torch.from_numpy(points), size, origin, rounding)
    assert_same(cells, oracle.quantize(points, size, origin or [0.0] * 3, rounding))
    wide = ops.quantize(torch.from_numpy(points).double(), size, origin, rounding)
    assert (wide != cells).any(), "the data should tell the two arithmetics apart"


def test_mirrored_points_fall_in_different_voxels_and_whole_shifts_keep_the_grouping() -> None:
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
    cells = ops.quantize(torch.from_numpy((signs * [0.31, 0.72, 1.13]).astype(np.float32)), 0.05)
    assert len({tuple(row) for row in cells.tolist()}) == 8
    grid = torch.from_numpy(np.random.default_rng(1).integers(-999, 999, (400, 3)) / 256.0)
    before, after = (ops.quantize(grid + 0.0625 * shift, 0.0625) for shift in (0, 37))
    assert_same(after - 37, before)


BAD = [
    (lambda p: ops.quantize(p, 0.0), ValueError, "voxel_size must be finite and > 0, got 0.0"),
    (lambda p: ops.quantize(p, [1.0, 2.0]), ValueError, "voxel_size must be a number or 3 numbers"),
    (lambda p: ops.quantize(p, 1.0, None, "ceil"), ValueError, "rounding must be one of"),
    (lambda p: ops.quantize(p.int(), 1.0), TypeError, "points must be float32"),
    (
        lambda p: ops.quantize(p * float("nan"), 1.0),
        ValueError,
        "points must be finite, got .* row 0",
    ),
    (lambda p: ops.quantize(p + 1e12, 1.0), ValueError, r"within int32, got an extent of 1e\+12"),
    (lambda p: ops.voxelize(p, coords_of("one", 3)), ValueError, "coords must be of 4 rows"),
    (
        lambda p: ops.voxelize(p, torch.zeros(4, 4).int(), "min"),
        ValueError,
        "reduce must be one of",
    ),
    (ops.devoxelize, ValueError, "devoxelize must be given inverse, or coords and"),
    (
        lambda p: ops.devoxelize(p, torch.tensor([0, 4])),
        ValueError,
        r"inverse must be in \[-1, 4\), the rows of features, got 4",
    ),
    (lambda p: ops.devoxelize(p, torch.tensor([-2])), ValueError, "inverse must be in .* got -2"),
    (
        lambda p: ops.devoxelize(p, coords=torch.zeros(4, 4).int(), points=p),
        ValueError,
        "points must be of 4 columns as coords has, got 3",
    ),
    (lambda p: ops.group_points(p, [1.0] * 3, [0.0] * 5, 9, 9), ValueError, "point_range must be"),
    (
        lambda p: ops.group_points(p, [1.0] * 3, [0.0] * 6, 0, 9),
        ValueError,
        "max_voxels must be > 0",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD, ids=[row[2][:30] for row in BAD])
def test_bad_arguments(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(torch.zeros(4, 3))


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_weights_and_corners_are_those_of_the_map(ndim: int) -> None:
    points = _points(cloud("negative", ndim), 60, torch.float64)
    corners, weights = ops.cell_corners(points), ops.trilinear_weights(points[:, 1:])
    assert corners.shape == (2**ndim, 60, 1 + ndim)
    sites = corners.reshape(-1, 1 + ndim)
    rows, shares = oracle.trilinear(sites.numpy(), points.numpy())
    assert_same(sites[torch.from_numpy(rows).long()].transpose(0, 1), corners.numpy())
    assert_close(weights, shares, torch.float64)
    assert_close(weights.sum(1), np.ones(60), torch.float64)


def test_shares_of_what_is_there() -> None:
    rows = torch.tensor([[0, -1, 2], [-1, -1, -1], [1, 1, -1]])
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    wanted = [[0.4, 0, 0.6], [0, 0, 0], [0, 0, 0]]
    torch.testing.assert_close(ops.shares_present(rows, weights), torch.tensor(wanted))
    torch.testing.assert_close(ops.shares_present(rows, weights, 0.5), torch.tensor(wanted) / 2)


def test_corners_stay_in_int32() -> None:
    with pytest.raises(ValueError, match="points must be within int32"):
        ops.cell_corners(torch.tensor([[0, 3e9]]))
    with pytest.raises(ValueError, match=r"points \+ 1 must be within int32"):
        ops.cell_corners(torch.tensor([[0, 2.0**31 - 1]], dtype=torch.float64))


@pytest.mark.parametrize("half", ["away", "even"])
def test_grids_are_those_of_float32(half: str) -> None:
    """Against numpy's float32, where 0.35 / 0.1 is 3.5 (in float64 it is less)."""
    rng = np.random.default_rng(8)
    sizes = rng.choice([0.05, 0.1, 0.2, 0.3, 0.15, 0.07, 0.5, 0.25], (400, 3))
    low = rng.uniform(-3, 3, (400, 3)).round(2)
    cells = rng.integers(1, 40, (400, 3)) + rng.choice([0, 0.5, 0.3], (400, 3))
    high = (low + sizes * cells).round(4)
    ratio = (high.astype(np.float32) - low.astype(np.float32)) / sizes.astype(np.float32)
    whole = np.round(ratio) if half == "even" else np.trunc(ratio.astype(np.float64) + 0.5)
    for size, a, b, expected in zip(sizes, low, high, whole, strict=True):
        assert ops.grid_shape(list(size), [*a, *b], half) == expected.astype(int).tolist()
    assert ops.grid_shape([0.1], [0.0, 0.35], half) == [4]
    assert ops.grid_shape([1.0], [0.0, 4.5], half) == [5 if half == "away" else 4]


def test_points_in_the_last_half_cell_count_where_the_grid_is_rounded_up() -> None:
    points = torch.tensor([[0.5], [4.2], [4.9], [5.1]])
    away = ops.group_points(points, [1.0], [0.0, 4.5], 9, 1)
    even = ops.group_points(points, [1.0], [0.0, 4.5], 9, 1, "even")
    assert away.indices.tolist() == [[0], [4]]
    assert even.indices.tolist() == [[0]]
    with pytest.raises(ValueError, match=r"half must be one of .*, got 'up'"):
        ops.grid_shape([1.0], [0.0, 4.5], "up")
    with pytest.raises(ValueError, match=r"voxel_size must be finite and > 0, got \[0.0\]"):
        ops.group_points(points, [0.0], [0.0, 4.5], 9, 1)
