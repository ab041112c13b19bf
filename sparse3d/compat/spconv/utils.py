"""`spconv.utils`: voxel generators of 1.x and 2.x on numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from ... import _check
from ...nn.utils import PointToVoxel
from ...ops.voxelize import grid_shape
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
        self._grid = np.array(grid_shape(*self._numbers), np.int64)
        self._points, self._voxels, self._full_mean = max_num_points, max_voxels, full_mean

    def generate(self, points: Array, max_voxels: int | None = None) -> dict[str, Any]:
        """Points [N, F] to `voxels`, `coordinates` (z, y, x), `num_points_per_voxel`."""
        generator = PointToVoxel(
            *self._numbers,
            points.shape[1],
            self._voxels if max_voxels is None else max_voxels,
            self._points,
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


class _Refusal:
    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__doc__ = "Not here: box operators are no part of sparse3d."

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"{self.__name__} must be left out with sparse3d, got a call; box operators are not "
            "implemented (spconv's own wheels refuse the rotated ones too)"
        )


rbbox_iou = _Refusal("rbbox_iou")
rbbox_intersection = _Refusal("rbbox_intersection")
rbbox_iou_loss = _Refusal("rbbox_iou_loss")
non_max_suppression_cpu = _Refusal("non_max_suppression_cpu")
rotate_non_max_suppression_cpu = _Refusal("rotate_non_max_suppression_cpu")
