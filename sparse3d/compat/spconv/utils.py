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
from ...pointops.boxes import (
    intersection_area,
    overlap_over_union,
    suppress_boxes,
    suppress_quadrilaterals,
)
from ..cumm.tensorview import Tensor, from_numpy

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
    "non_max_suppression_cpu",
    "nullcontext",
    "rbbox_intersection",
    "rbbox_iou",
    "rbbox_iou_loss",
    "rotate_non_max_suppression_cpu",
]

Array = npt.NDArray[Any]
HALF = "even"  # numpy rounds 1.x's grids


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
        if block_filtering:
            _check.fail("block_filtering", "False", True, "filter the points beforehand")
        self._size = np.array(voxel_size, np.float32)
        self._range = np.array(point_cloud_range, np.float32)
        self._numbers = [float(v) for v in voxel_size], [float(v) for v in point_cloud_range]
        self._grid = np.array(grid_shape(*self._numbers, HALF), np.int64)
        self._points, self._voxels, self._full_mean = max_num_points, max_voxels, full_mean

    def generate(self, points: Array, max_voxels: int | None = None) -> dict[str, Any]:
        """Points [N, F] to `voxels`, `coordinates` (z, y, x), `num_points_per_voxel`."""
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


def _pairwise(
    box_corners: Array, qbox_corners: Array, standup_iou: Array, standup_thresh: float, union: bool
) -> Array:
    overlap = np.zeros((len(box_corners), len(qbox_corners)), box_corners.dtype)
    rows, columns = np.nonzero(np.asarray(standup_iou) > standup_thresh)
    overlap[rows, columns] = _overlaps(box_corners[rows], qbox_corners[columns], union)
    return overlap


def _overlaps(boxes: Array, others: Array, union: bool) -> Array:
    """Shared areas of pairs of boxes, over the areas of their unions if asked for."""
    function = overlap_over_union if union else intersection_area
    return function(_corners(boxes), _corners(others)).numpy()


def _corners(boxes: Array) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(boxes, np.float64))


def rbbox_iou(
    box_corners: Array, qbox_corners: Array, standup_iou: Array, standup_thresh: float
) -> Array:
    """Overlap over union of rotated boxes [N, 4, 2] and [K, 4, 2], seen from above: [N, K].

    Only pairs whose upright boxes overlap by more than `standup_thresh` ([N, K]) are computed;
    others are 0.
    """
    return _pairwise(box_corners, qbox_corners, standup_iou, standup_thresh, True)


def rbbox_intersection(
    box_corners: Array, qbox_corners: Array, standup_iou: Array, standup_thresh: float
) -> Array:
    """Shared area of rotated boxes; as `rbbox_iou` otherwise."""
    return _pairwise(box_corners, qbox_corners, standup_iou, standup_thresh, False)


def rbbox_iou_loss(box_corners: Array, qbox_corners: Array) -> Array:
    """Overlap over union of box n with box n: [N]."""
    return _overlaps(box_corners, qbox_corners, True).astype(box_corners.dtype)


def non_max_suppression_cpu(
    boxes: Array, order: Array, thresh: float, eps: float = 0.0
) -> list[int]:
    """Boxes (x1, y1, x2, y2) that no box before them in `order` overlaps by `thresh` or more."""
    places = torch.from_numpy(np.asarray(order).astype(np.int64))
    found: list[int] = suppress_boxes(torch.from_numpy(boxes), places, thresh, eps).tolist()
    return found


def rotate_non_max_suppression_cpu(
    boxes: Array, order: Array, standup_iou: Array, thresh: float
) -> list[int]:
    """The same for rotated boxes [N, 4, 2]; pairs whose `standup_iou` is 0 are left alone."""
    places = torch.from_numpy(np.asarray(order).astype(np.int64))
    near = torch.from_numpy(np.asarray(standup_iou) > 0)
    found: list[int] = suppress_quadrilaterals(_corners(boxes), places, thresh, near).tolist()
    return found
