"""The oracle itself, judged by torch's dense layers and by examples worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
import torch
import torch.nn.functional as F

from sparse3d._cases.clouds import BATCH_SIZE, GEOMETRIES, GRID, Geometry, cloud

CONV: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED: dict[int, Any] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}
DENSE = [g for g in GEOMETRIES if g.ndim <= 3]


def _name(geometry: Geometry) -> str:
    return geometry.name


def _dense(features: oracle.Array, coords: oracle.Array, grid: tuple[int, ...]) -> torch.Tensor:
    """Channels-first dense tensor of a cloud, with a gradient."""
    rows = torch.from_numpy(oracle.to_dense(features, coords, BATCH_SIZE, grid))
    return rows.movedim(-1, 1).contiguous().requires_grad_()


def _problem(geometry: Geometry, groups: int = 1) -> tuple[Any, Any, Any, tuple[int, ...]]:
    rng = np.random.default_rng(7)
    coords = cloud("interleaved", geometry.ndim)
    features = rng.standard_normal((len(coords), 4))
    weight = rng.standard_normal((6, geometry.volume, 4 // groups))
    return coords, features, weight, GRID[geometry.ndim]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("geometry", DENSE, ids=_name)
def test_convolution_and_gradients_agree_with_the_dense_layer(
    geometry: Geometry, groups: int
) -> None:
    coords, features, weight, grid = _problem(geometry, groups)
    shape = oracle.output_shape(grid, *geometry.numbers)
    found = oracle.footprint_map(coords, *geometry.numbers, shape)
    x = _dense(features, coords, grid)
    w = torch.from_numpy(weight).reshape(6, *geometry.kernel_size, -1).movedim(-1, 1)
    w = w.contiguous().requires_grad_()
    dense = CONV[geometry.ndim](
        x, w, None, geometry.stride, geometry.padding, geometry.dilation, groups
    )
    assert list(dense.shape[2:]) == shape

    out = oracle.convolve(features, weight, found.pairs, len(found.out), groups)
    at = oracle.as_coords(found.out, geometry.ndim)
    ours = oracle.to_dense(out, at, BATCH_SIZE, shape)
    # Outputs that no input reaches are zero in the dense layer too, so everything is compared.
    np.testing.assert_allclose(ours, dense.detach().movedim(1, -1), atol=1e-12)

    grad = np.random.default_rng(8).standard_normal(out.shape)
    dense.backward(torch.from_numpy(oracle.to_dense(grad, at, BATCH_SIZE, shape)).movedim(-1, 1))
    assert x.grad is not None
    assert w.grad is not None
    np.testing.assert_allclose(
        oracle.convolve_input_grad(grad, weight, found.pairs, len(coords), groups),
        oracle.from_dense(x.grad.movedim(1, -1).numpy(), coords),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        oracle.convolve_weight_grad(features, grad, found.pairs, groups),
        w.grad.movedim(1, -1).reshape(weight.shape).numpy(),
        atol=1e-12,
    )


@pytest.mark.parametrize("geometry", DENSE, ids=_name)
def test_generative_agrees_with_the_dense_transposed_layer(geometry: Geometry) -> None:
    coords, features, weight, grid = _problem(geometry)
    extra = [0] * geometry.ndim
    shape = oracle.transposed_output_shape(grid, *geometry.numbers, extra)
    found = oracle.generative_map(coords, *geometry.numbers, shape)
    kernel = torch.from_numpy(weight).reshape(6, *geometry.kernel_size, 4).movedim(-1, 0)
    dense = TRANSPOSED[geometry.ndim](
        _dense(features, coords, grid),
        kernel,
        None,
        geometry.stride,
        geometry.padding,
        0,
        1,
        geometry.dilation,
    )
    assert list(dense.shape[2:]) == shape
    out = oracle.convolve(features, weight, found.pairs, len(found.out))
    ours = oracle.to_dense(out, oracle.as_coords(found.out, geometry.ndim), BATCH_SIZE, shape)
    np.testing.assert_allclose(ours, dense.detach().movedim(1, -1), atol=1e-12)


@pytest.mark.parametrize("geometry", DENSE, ids=_name)
def test_inverse_is_the_transposed_layer_at_the_original_sites(geometry: Geometry) -> None:
    coords, _, weight, grid = _problem(geometry)
    shape = oracle.output_shape(grid, *geometry.numbers)
    down = oracle.footprint_map(coords, *geometry.numbers, shape)
    coarse = np.random.default_rng(9).standard_normal((len(down.out), 4))
    kernel = torch.from_numpy(weight).reshape(6, *geometry.kernel_size, 4).movedim(-1, 0)
    at = oracle.as_coords(down.out, geometry.ndim)
    # Without padding and cut to the grid afterwards: torch allows no output_padding >= stride.
    dense = TRANSPOSED[geometry.ndim](
        _dense(coarse, at, tuple(shape)),
        kernel,
        stride=geometry.stride,
        dilation=geometry.dilation,
    )
    for axis, (n, pad) in enumerate(zip(grid, geometry.padding, strict=True), start=2):
        dense = dense.narrow(axis, pad, min(n, dense.shape[axis] - pad))
        more = [0] * (2 * geometry.ndim)
        more[2 * (geometry.ndim + 1 - axis) + 1] = n - dense.shape[axis]
        dense = F.pad(dense, more)
    out = oracle.convolve(coarse, weight, down.transposed().pairs, len(coords))
    np.testing.assert_allclose(
        out, oracle.from_dense(dense.detach().movedim(1, -1).numpy(), coords), atol=1e-12
    )


def test_submanifold_is_the_dense_layer_at_active_sites() -> None:
    for geometry in GEOMETRIES:
        if not geometry.submanifold or geometry.ndim > 3:
            continue
        coords, features, weight, grid = _problem(geometry)
        found = oracle.submanifold_map(coords, geometry.kernel_size, geometry.dilation)
        kernel = torch.from_numpy(weight).reshape(6, *geometry.kernel_size, 4).movedim(-1, 1)
        dense = CONV[geometry.ndim](
            _dense(features, coords, grid),
            kernel,
            padding=geometry.padding,
            dilation=geometry.dilation,
        )
        np.testing.assert_allclose(
            oracle.convolve(features, weight, found.pairs, len(coords)),
            oracle.from_dense(dense.detach().movedim(1, -1).numpy(), coords),
            atol=1e-12,
        )


def test_max_pool_agrees_with_the_dense_pool_where_the_window_is_full() -> None:
    block = cloud("block", 3)
    features = np.random.default_rng(3).standard_normal((len(block), 5))
    found = oracle.footprint_map(block, (2, 2, 2), (1, 1, 1), (0, 0, 0), (1, 1, 1), [2, 2, 2])
    out, arg = oracle.pool_max(features, found.pairs, len(found.out))
    x = torch.from_numpy(oracle.to_dense(features, block, 1, (3, 3, 3))).movedim(-1, 1)
    dense = F.max_pool3d(x, 2, 1).movedim(1, -1).numpy()
    np.testing.assert_array_equal(
        oracle.to_dense(out, oracle.as_coords(found.out, 3), 1, (2, 2, 2)), dense
    )
    np.testing.assert_array_equal(np.take_along_axis(features, arg, 0), out)
    mean = F.avg_pool3d(x, 2, 1).movedim(1, -1).numpy()
    np.testing.assert_allclose(
        oracle.to_dense(
            oracle.pool_mean(features, found.pairs, len(found.out)),
            oracle.as_coords(found.out, 3),
            1,
            (2, 2, 2),
        ),
        mean,
        atol=1e-14,
    )


def test_max_pool_takes_the_lowest_tap_of_equals_and_lets_nan_win() -> None:
    features = np.array([[1.0, np.nan], [1.0, 5.0], [0.0, np.nan]])
    out, arg = oracle.pool_max(features, [[(2, 0)], [(1, 0)], [(0, 0)]], 2)
    assert arg.tolist() == [[1, 2], [-1, -1]]
    assert out[0, 0] == 1.0
    assert np.isnan(out[0, 1])
    assert out[1].tolist() == [0.0, 0.0]


def test_worked_example_on_the_4_by_5_grid() -> None:
    coords = np.array([[0, 1, 1], [0, 2, 2], [0, 2, 4], [0, 3, 3]], np.int32)
    dense = oracle.footprint_map(coords, (3, 3), (1, 1), (1, 1), (1, 1), (4, 5))
    assert (len(dense.out), dense.total) == (17, 30)
    subm = oracle.submanifold_map(coords, (3, 3), (1, 1))
    assert (len(subm.out), subm.total) == (4, 10)


def test_worked_example_on_the_5_by_5_grid() -> None:
    coords = np.array([[0, 1, 1], [0, 2, 2], [0, 2, 4], [0, 3, 2], [0, 4, 3]], np.int32)
    found = oracle.submanifold_map(coords, (3, 3), (1, 1))
    rows = [len(tap) for tap in found.pairs]
    assert found.total == 11
    assert [n for n in rows if n] == [2, 1, 5, 1, 2]
    assert rows == rows[::-1]
    table = oracle.neighbour_table(found.pairs, len(coords))
    assert (table[2] >= 0).sum() == 1  # (2, 4) is isolated: itself through the centre


def test_one_site_becomes_27_then_125() -> None:
    one = np.array([[0, 4, 4, 4]], np.int32)
    numbers = ((3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1))
    first = oracle.footprint_map(one, *numbers, (9, 9, 9))
    second = oracle.footprint_map(oracle.as_coords(first.out, 3), *numbers, (9, 9, 9))
    assert (len(first.out), len(second.out)) == (27, 125)


def test_rows_come_by_batch_and_then_by_first_occurrence() -> None:
    coords = np.array([[1, 5], [0, 3], [1, 0], [0, 3], [0, -1]], np.int32)
    first, inverse = oracle.unique(coords)
    assert first.tolist() == [1, 4, 0, 2]
    assert inverse.tolist() == [2, 0, 3, 0, 1]
    floor = oracle.floor_map(coords, (2,), (2,), (0,), (1,))
    assert floor.out == [(0, 1), (0, -1), (1, 2), (1, 0)]
    foot = oracle.footprint_map(coords[:2], (3,), (1,), (1,), (1,), None)
    # Tap 0 reads from the left, so scanning taps upwards finds outputs from the right.
    assert foot.out == [(0, 4), (0, 3), (0, 2), (1, 6), (1, 5), (1, 4)]


def test_trilinear_weights_and_the_renormalised_sum() -> None:
    coords = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1]], np.int32)
    rows, weights = oracle.trilinear(coords, np.array([[0, 0.25, 0.5], [1, 0.25, 0.5]]))
    assert rows.tolist() == [[0, 1, -1, 2], [-1] * 4]
    assert weights[0].tolist() == [0.375, 0.375, 0.125, 0.125]
    features = np.array([[8.0], [16.0], [24.0]])
    assert oracle.interpolate(features, rows, weights).tolist() == [[12.0], [0.0]]
    assert oracle.interpolate(features, rows, weights, True)[0, 0] == pytest.approx(12 / 0.875)


def test_union_and_coalesce() -> None:
    a = np.array([[0, 1], [0, 2]], np.int32), np.array([[1.0], [2.0]])
    b = np.array([[0, 2], [0, 0]], np.int32), np.array([[10.0], [20.0]])
    coords, features = oracle.union_add([a, b])
    assert coords.tolist() == [[0, 1], [0, 2], [0, 0]]
    assert features.tolist() == [[1.0], [12.0], [20.0]]
    twice = np.array([[0, 7], [0, 3], [0, 7]], np.int32)
    values = np.array([[1.0], [5.0], [3.0]])
    for reduce, expected in {"sum": 4.0, "mean": 2.0, "max": 3.0, "first": 1.0}.items():
        assert oracle.coalesce(twice, values, reduce)[1].tolist() == [[expected], [5.0]]
