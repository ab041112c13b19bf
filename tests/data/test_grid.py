"""Voxels: every choice named, and the named choice is what happens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sparse3d.data import read_scan, represent, to_grid
from sparse3d.data.inputs import to_sparse

POINTS = np.random.default_rng(1).normal(0, 3, (4000, 4)).astype(np.float32)


@pytest.mark.parametrize("rounding", ["floor", "round"])
@pytest.mark.parametrize("origin", ["min", "zero"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_against_a_dictionary(rounding: str, origin: str, dtype: str) -> None:
    grid = to_grid(POINTS, 0.5, rounding=rounding, origin=origin, dtype=dtype)
    scaled = POINTS[:, :3].astype(dtype) / np.asarray(0.5, dtype)
    cells = np.floor(scaled) if rounding == "floor" else np.round(scaled)
    cells = cells.astype(int) - (cells.astype(int).min(0) if origin == "min" else 0)
    seen: dict[tuple[int, ...], int] = {}
    first, inverse = [], []
    for row, cell in enumerate(map(tuple, cells.tolist())):
        if cell not in seen:
            seen[cell] = len(seen)
            first.append(row)
        inverse.append(seen[cell])
    assert [tuple(c) for c in grid.coords.tolist()] == list(seen)
    assert grid.first.tolist() == first
    assert grid.inverse.tolist() == inverse
    assert grid.coords.dtype == np.int32


def test_representatives() -> None:
    grid = to_grid(POINTS, 1.0)
    values = POINTS.astype(np.float32)
    np.testing.assert_array_equal(represent(values, grid, "first"), values[grid.first])
    mean = represent(values, grid, "mean")
    picked = represent(values, grid, "random", np.random.default_rng(0))
    again = represent(values, grid, "random", np.random.default_rng(0))
    np.testing.assert_array_equal(picked, again)
    assert not np.array_equal(picked, values[grid.first])
    for voxel in range(0, len(grid.coords), 37):
        members = values[grid.inverse == voxel]
        np.testing.assert_allclose(mean[voxel], members.astype(np.float64).mean(0), rtol=1e-5)
        assert (members == picked[voxel]).all(1).any()
    with pytest.raises(ValueError, match="rng must be"):
        represent(values, grid, "random")
    with pytest.raises(ValueError, match="how must be"):
        represent(values, grid, "last")
    with pytest.raises(ValueError, match="values must have 4000 rows"):
        represent(values[:5], grid)


def test_indices_are_batch_z_y_x() -> None:
    grid = to_grid(np.array([[0.0, 0, 0], [3, 2, 1]]), 1.0)
    assert grid.indices(7).tolist() == [[7, 0, 0, 0], [7, 1, 2, 3]]
    assert grid.shape() == (2, 3, 4)


def test_round_is_half_to_even_as_in_the_published_recipes() -> None:
    points = np.array([[0.5, 1.5, 2.5], [-0.5, -1.5, 0]])
    grid = to_grid(points, 1.0, rounding="round", origin="zero")
    assert grid.coords.tolist() == [[0, 2, 2], [0, -2, 0]]


def test_empty() -> None:
    grid = to_grid(np.zeros((0, 4), np.float32), 0.1)
    assert grid.coords.shape == (0, 3)
    assert represent(np.zeros((0, 2)), grid, "mean").shape == (0, 2)
    assert grid.indices().shape == (0, 4)


def test_beyond_int32_names_the_extent() -> None:
    points = np.zeros((10, 3))
    points[4, 1] = 3e9
    with pytest.raises(ValueError, match=r"int32, got an extent of .*0\.\.6e\+10.* voxels"):
        to_grid(points, 0.05)
    wide = np.array([[-1.2e9, 0, 0], [1.2e9, 0, 0]])
    with pytest.raises(ValueError, match=r"at most int32 voxels.*2400000001"):
        to_grid(wide, 1.0, dtype="float64")
    edge = np.array([[2.0**31 - 1, 0, 0]])
    assert to_grid(edge, 1.0, origin="zero", dtype="float64").coords[0, 0] == 2**31 - 1


def test_tensors_and_lists_are_points_too() -> None:
    rows = [[0.0, 0.1, 0.2], [3.0, 0.1, 0.2]]
    for points in (rows, torch.tensor(rows)):
        assert len(to_grid(points, 0.5).coords) == 2


def test_features_that_the_points_do_not_have() -> None:
    points = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match="points must have 4 columns, got 3"):
        to_sparse(points, voxel_size=0.1, features=["remission"])
    with pytest.raises(ValueError, match="names must be at least one of"):
        to_sparse(points, voxel_size=0.1, features=[])


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="rounding must be"):
        to_grid(POINTS, 0.1, rounding="trunc")
    with pytest.raises(ValueError, match=r"size must be finite and > 0, got 0\.0"):
        to_grid(POINTS, 0.0)
    with pytest.raises(ValueError, match=r"points must be finite, got .* in row 1"):
        to_grid(np.array([[0, 0, 0], [np.nan, 0, 0]]), 0.1)
    with pytest.raises(ValueError, match=r"shape \[N, >=3\]"):
        to_grid(np.zeros((4, 2)), 0.1)


@pytest.mark.data
def test_recorded_voxel_counts(shared: Path) -> None:
    lidar = shared / "data" / "lidar"
    frame = read_scan(lidar / "kitti_spvnas_000000.bin").points
    assert len(to_grid(frame, 0.05).coords) == 94_444
    border = read_scan(lidar / "kitti_det_000008_fov.bin").points
    assert len(to_grid(border, 0.05, dtype="float32").coords) == 14_014
    assert len(to_grid(border, 0.05, dtype="float64").coords) == 14_023


@pytest.mark.data
def test_reference_voxels(shared: Path) -> None:
    folder = shared / "data" / "sparse_ref"
    points = np.load(folder / "spconv_benchmark_pc.npz")["pc"]
    reference = np.load(folder / "spconv_voxelized_reference.npz")
    low = np.array([-80, -80, -2], np.float32)
    inside = ((points >= low) & (points < np.array([80, 80, 6], np.float32))).all(1)
    kept = points[inside]
    grid = to_grid(kept - low, 0.1, origin="zero", dtype="float32")
    np.testing.assert_array_equal(grid.indices(), reference["coords"])
    np.testing.assert_array_equal(represent(kept, grid, "first"), reference["voxels"].squeeze())
