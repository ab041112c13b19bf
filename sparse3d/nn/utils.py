"""spconv's `utils`: points to voxels for detectors, and features back to points."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _check
from ..ops.segment import reduce_segments
from ..ops.voxelize import grid_shape, group_points

__all__ = ["PointToVoxel", "gather_features_by_pc_voxel_id"]


class PointToVoxel:
    """List the points of each voxel inside a box, first come first served.

    Args:
        vsize_xyz: voxel edges, x, y, z.
        coors_range_xyz: lower bounds, then upper bounds, x, y, z.
        num_point_features: columns F of a point.
        max_num_voxels: voxels kept, in order of first occurrence.
        max_num_points_per_voxel: points P kept of a voxel, in input order.
        device: of the points.
        half: how half a cell at the upper bound is rounded, see `ops.voxelize.grid_shape`.
    """

    def __init__(
        self,
        vsize_xyz: Sequence[float],
        coors_range_xyz: Sequence[float],
        num_point_features: int,
        max_num_voxels: int,
        max_num_points_per_voxel: int,
        device: torch.device | str = "cpu",
        *,
        half: str = "away",
    ) -> None:
        self.ndim = len(vsize_xyz)
        self.device = torch.device(device)
        self.num_point_features = _check.positive("num_point_features", num_point_features)
        self.max_num_voxels = _check.positive("max_num_voxels", max_num_voxels)
        self.max_num_points_per_voxel = _check.positive(
            "max_num_points_per_voxel", max_num_points_per_voxel
        )
        self._vsize_xyz = [float(value) for value in vsize_xyz]
        self._range_xyz = [float(value) for value in coors_range_xyz]
        if len(self._range_xyz) != 2 * self.ndim:
            _check.fail("coors_range_xyz", f"of {2 * self.ndim} bounds", self._range_xyz)
        low, high = self._range_xyz[: self.ndim], self._range_xyz[self.ndim :]
        self._half = half
        self.grid_size = grid_shape(self._vsize_xyz, self._range_xyz, half)[::-1]
        self.vsize = self._vsize_xyz[::-1]
        self.coors_range = low[::-1] + high[::-1]

    def __call__(
        self, pc: torch.Tensor, clear_voxels: bool = True, empty_mean: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Voxels of a cloud.

        Args:
            pc: [N, F], x, y, z first.
            clear_voxels: accepted for spconv's signature; unused slots are always 0.
            empty_mean: fill unused slots with the mean of the voxel's own points.

        Returns:
            Points [M, P, F], indices int32 [M, D] (z, y, x), counts int32 [M].
        """
        return self.generate_voxel_with_id(pc, clear_voxels, empty_mean)[:3]

    def generate_voxel_with_id(
        self, pc: torch.Tensor, clear_voxels: bool = True, empty_mean: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Voxels of a cloud, and each point's voxel int64 [N], -1 outside."""
        points = _check.features("pc", pc)
        if points.device.type != self.device.type:
            _check.fail("pc", f"on {self.device}", points.device, "move it with .to(device)")
        if points.shape[1] < self.num_point_features:
            _check.fail("pc", f"of {self.num_point_features} columns", points.shape[1])
        made = group_points(
            points[:, : self.num_point_features],
            self._vsize_xyz,
            self._range_xyz,
            self.max_num_voxels,
            self.max_num_points_per_voxel,
            self._half,
        )
        voxels = _fill_mean(made.points, made.counts) if empty_mean else made.points
        return voxels, made.indices, made.counts, made.voxel_ids


def slot_means(voxels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Mean of each voxel's points.

    Args:
        voxels: [M, P, F]; what lies behind a voxel's points is not read.
        counts: integers [M], points of each.

    Returns:
        [M, F].
    """
    used = torch.arange(voxels.shape[1], device=voxels.device) < counts[:, None]
    owner, _ = used.nonzero(as_tuple=True)
    return reduce_segments(voxels[used], owner, len(voxels), "mean")


def _fill_mean(voxels: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    used = torch.arange(voxels.shape[1], device=voxels.device) < counts[:, None]
    return torch.where(used[..., None], voxels, slot_means(voxels, counts)[:, None])


def gather_features_by_pc_voxel_id(
    seg_res_features: torch.Tensor, pc_voxel_id: torch.Tensor, invalid_value: float = 0
) -> torch.Tensor:
    """Voxel rows at points.

    Args:
        seg_res_features: [M, ...] of the voxels.
        pc_voxel_id: int64 [N], -1 for none.
        invalid_value: of points without a voxel.

    Returns:
        [N, ...].
    """
    ids = pc_voxel_id.to(seg_res_features.device)
    inside = ids >= 0
    shape = (len(ids), *seg_res_features.shape[1:])
    out = seg_res_features.new_full(shape, invalid_value)
    out[inside] = seg_res_features[ids[inside]]
    return out
