"""`spconv.utils`: voxel generators of 1.x and 2.x and box overlaps, on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ... import _check
from ...nn.utils import PointToVoxel
from ...ops.voxelize import grid_shape
from ..cumm.tensorview import Tensor, from_numpy
from . import spconv_utils
from .spconv_utils import (
    HALF,
    non_max_suppression,
    non_max_suppression_cpu,
    points_to_voxel_3d_np,
    points_to_voxel_3d_np_mean,
    points_to_voxel_3d_with_filtering,
    rbbox_intersection,
    rbbox_iou,
    rbbox_iou_loss,
    rotate_non_max_suppression_cpu,
)

__all__ = [
    "Point2VoxelCPU1d",
    "Point2VoxelCPU2d",
    "Point2VoxelCPU3d",
    "Point2VoxelCPU4d",
    "Point2VoxelGPU1d",
    "Point2VoxelGPU2d",
    "Point2VoxelGPU3d",
    "Point2VoxelGPU4d",
    "VoxelGenerator",
    "VoxelGeneratorV2",
    "non_max_suppression",
    "non_max_suppression_cpu",
    "nullcontext",
    "points_to_voxel",
    "points_to_voxel_3d_np",
    "points_to_voxel_3d_np_mean",
    "points_to_voxel_3d_with_filtering",
    "rbbox_intersection",
    "rbbox_iou",
    "rbbox_iou_loss",
    "rotate_non_max_suppression_cpu",
    "spconv_utils",
]

Array = npt.NDArray[Any]


class _Point2Voxel:
    axes: int

    def __init__(
        self,
        vsize_xyz: Sequence[float],
        coors_range_xyz: Sequence[float],
        num_point_features: int,
        max_num_voxels: int,
        max_num_points_per_voxel: int,
    ) -> None:
        if len(vsize_xyz) != self.axes:
            _check.fail("vsize_xyz", f"of {self.axes} entries", list(vsize_xyz))
        self._generator = PointToVoxel(
            vsize_xyz,
            coors_range_xyz,
            num_point_features,
            max_num_voxels,
            max_num_points_per_voxel,
        )
        self.grid_size = self._generator.grid_size

    def point_to_voxel(
        self, points: Array, clear_voxels: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Points [N, F] to voxels [M, P, F], indices [M, D] (z, y, x) and counts [M]."""
        return self._run(points, False)

    def point_to_voxel_empty_mean(
        self, points: Array, clear_voxels: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same with unused slots at the mean of the voxel's points."""
        return self._run(points, True)

    def _run(self, points: Array, empty_mean: bool) -> tuple[Tensor, Tensor, Tensor]:
        cloud = torch.from_numpy(np.ascontiguousarray(np.asarray(points)))
        voxels, indices, counts = self._generator(cloud, empty_mean=empty_mean)
        return from_numpy(voxels.numpy()), from_numpy(indices.numpy()), from_numpy(counts.numpy())


class Point2VoxelCPU1d(_Point2Voxel):
    """Voxel generator over 1 axis."""

    axes = 1


class Point2VoxelCPU2d(_Point2Voxel):
    """Voxel generator over 2 axes."""

    axes = 2


class Point2VoxelCPU3d(_Point2Voxel):
    """Voxel generator over 3 axes."""

    axes = 3


class Point2VoxelCPU4d(_Point2Voxel):
    """Voxel generator over 4 axes."""

    axes = 4


Point2VoxelGPU1d = Point2VoxelCPU1d
Point2VoxelGPU2d = Point2VoxelCPU2d
Point2VoxelGPU3d = Point2VoxelCPU3d
Point2VoxelGPU4d = Point2VoxelCPU4d


def points_to_voxel(
    points: Array,
    voxel_size: Sequence[float] | Array,
    coors_range: Sequence[float] | Array,
    coor_to_voxelidx: Array | None = None,
    max_points: int = 35,
    max_voxels: int = 20000,
    full_mean: bool = False,
    block_filtering: bool = True,
    block_factor: int = 1,
    block_size: int = 8,
    height_threshold: float = 0.2,
    height_high_threshold: float = 3.0,
    pad_output: bool = False,
) -> dict[str, Any]:
    """1.2's function: voxels of points [N, F] in arrays of `max_voxels` rows, zeros in unused ones.

    Args:
        points: x, y, z first.
        voxel_size: x, y, z.
        coors_range: lower bounds, then upper bounds.
        coor_to_voxelidx: accepted and left alone; 1.x's scratch.
        max_points: kept of a voxel.
        max_voxels: kept, in order of first occurrence.
        full_mean: fill unused slots with the mean of the voxel's points.
        block_filtering: keep voxels where heights differ, see `points_to_voxel_3d_with_filtering`.
        block_factor: voxels of a block along y and x; divides the grid.
        block_size: blocks of a window.
        height_threshold: least span of heights.
        height_high_threshold: largest.
        pad_output: leave `max_voxels` rows after filtering too.

    Returns:
        `voxels`, `coordinates` (z, y, x), `num_points_per_voxel`, `voxel_point_mask` [M, P, 1] and
        `voxel_num`, the number of rows that count.

    Raises:
        ValueError: if `full_mean` and `block_filtering` are both asked for, or `block_factor` does
            not divide the grid.
    """
    if full_mean and block_filtering:
        _check.fail("block_filtering", "False with full_mean", True)
    box = [float(v) for v in voxel_size], [float(v) for v in coors_range]
    shape = max_voxels, max_points, points.shape[1]
    voxels, mask = np.zeros(shape, points.dtype), np.zeros(shape[:2], points.dtype)
    coors, counts = np.zeros((max_voxels, 3), np.int32), np.zeros(max_voxels, np.int32)
    rows: tuple[Any, ...] = coors, counts, coor_to_voxelidx, *box, max_points, max_voxels
    if full_mean:
        means = np.zeros((max_voxels, points.shape[1]), points.dtype)
        number = points_to_voxel_3d_np_mean(points, voxels, mask, means, *rows)
    elif block_filtering:
        blocks = [cells // block_factor for cells in grid_shape(*box, HALF)[1::-1]]
        if any(cells % block_factor for cells in grid_shape(*box, HALF)[:2]):
            _check.fail("block_factor", f"a divisor of {grid_shape(*box, HALF)[:2]}", block_factor)
        mins, maxs = (np.full(blocks, bound, points.dtype) for bound in (np.inf, -np.inf))
        keep = np.zeros(max_voxels, np.int32)
        rows = *rows, block_factor, block_size, height_threshold, height_high_threshold
        points_to_voxel_3d_with_filtering(points, voxels, mask, keep, mins, maxs, *rows)
        chosen = np.nonzero(keep)[0]
        number = len(chosen)
        voxels, mask, coors, counts = (
            _first(part, chosen, max_voxels if pad_output else number)
            for part in (voxels, mask, coors, counts)
        )
    else:
        number = points_to_voxel_3d_np(points, voxels, mask, *rows)
    return {
        "voxels": voxels,
        "coordinates": coors,
        "num_points_per_voxel": counts,
        "voxel_point_mask": mask[..., None],
        "voxel_num": number,
    }


def _first(part: Array, rows: Array, length: int) -> Array:
    """Some rows, then zeros."""
    made = np.zeros((length, *part.shape[1:]), part.dtype)
    made[: len(rows)] = part[rows]
    return made


class VoxelGeneratorV2:
    """spconv 1.2's generator; `generate` gives a dictionary."""

    def __init__(
        self,
        voxel_size: Sequence[float],
        point_cloud_range: Sequence[float],
        max_num_points: int,
        max_voxels: int = 20000,
        full_mean: bool = False,
        block_filtering: bool = False,
        block_factor: int = 8,
        block_size: int = 3,
        height_threshold: float = 0.1,
        height_high_threshold: float = 2.0,
    ) -> None:
        if full_mean and block_filtering:
            _check.fail("block_filtering", "False with full_mean", True)
        blocking = block_factor, block_size, height_threshold, height_high_threshold
        self._blocking: tuple[Any, ...] | None = blocking if block_filtering else None
        self._size = np.array(voxel_size, np.float32)
        self._range = np.array(point_cloud_range, np.float32)
        self._numbers = [float(v) for v in voxel_size], [float(v) for v in point_cloud_range]
        self._grid = np.array(grid_shape(*self._numbers, HALF), np.int64)
        self._points, self._voxels, self._full_mean = max_num_points, max_voxels, full_mean

    def generate(self, points: Array, max_voxels: int | None = None) -> dict[str, Any]:
        """Points [N, F] to `voxels`, `coordinates` (z, y, x), `num_points_per_voxel`."""
        if self._blocking is not None:
            most = self._voxels if max_voxels is None else max_voxels
            return points_to_voxel(
                points, *self._numbers, None, self._points, most, False, True, *self._blocking
            )
        generator = PointToVoxel(
            *self._numbers,
            points.shape[1],
            self._voxels if max_voxels is None else max_voxels,
            self._points,
            half=HALF,
        )
        cloud = torch.from_numpy(np.ascontiguousarray(points))
        voxels, indices, counts, ids = generator.generate_voxel_with_id(
            cloud, empty_mean=self._full_mean
        )
        used = np.arange(self._points) < counts.numpy()[:, None]
        return {
            "voxels": voxels.numpy(),
            "coordinates": indices.numpy(),
            "num_points_per_voxel": counts.numpy(),
            "voxel_point_mask": used.astype(points.dtype)[..., None],
            "voxel_num": len(counts),
            "pc_voxel_id": ids.numpy(),
        }

    def generate_multi_gpu(self, points: Array, max_voxels: int | None = None) -> dict[str, Any]:
        return self.generate(points, max_voxels)

    @property
    def voxel_size(self) -> Array:
        return self._size

    @property
    def max_num_points_per_voxel(self) -> int:
        return self._points

    @property
    def point_cloud_range(self) -> Array:
        return self._range

    @property
    def grid_size(self) -> Array:
        """x, y, z."""
        return self._grid


class VoxelGenerator(VoxelGeneratorV2):
    """spconv 1.0's generator; `generate` gives a tuple."""

    def __init__(
        self,
        voxel_size: Sequence[float],
        point_cloud_range: Sequence[float],
        max_num_points: int,
        max_voxels: int = 20000,
        full_mean: bool = True,
    ) -> None:
        super().__init__(voxel_size, point_cloud_range, max_num_points, max_voxels, full_mean)

    def generate(self, points: Array, max_voxels: int | None = None) -> Any:
        """Points [N, F] to (voxels, coordinates, num_points_per_voxel)."""
        made = super().generate(points, max_voxels)
        return made["voxels"], made["coordinates"], made["num_points_per_voxel"]
