"""pointnet2_ops.pointnet2_utils: int32 indices, channel-first features."""

from __future__ import annotations

import torch

from ...pointops import _inputs, gather, group, group_offsets
from ...pointops import ball_query as _ball_query
from ...pointops import three_interpolate as _three_interpolate
from ...pointops import three_nn as _three_nn
from ...pointops.fps import reduction_slots, sample_dense

_THREADS = 512


def furthest_point_sample(xyz: torch.Tensor, npoint: int) -> torch.Tensor:
    """(B, N, 3) -> (B, npoint) int32: from index 0, never a point with |p|^2 <= 1e-3.

    Taken points stay in the race and ties go to the thread that the CUDA reduction would keep.
    """
    _inputs.points("xyz", xyz, 3, 3)
    _inputs.count("npoint", npoint, 0)
    slots = reduction_slots(xyz.shape[1], _THREADS)
    return sample_dense(xyz, npoint, 0, skip_near_origin=True, stay=True, slots=slots).int()


def gather_operation(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(B, C, N), (B, n) -> (B, C, n)."""
    return gather(features, idx)


def grouping_operation(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(B, C, N), (B, n, s) -> (B, C, n, s)."""
    return group(features, idx)


def three_nn(unknown: torch.Tensor, known: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, n, 3), (B, m, 3) -> Euclidean distances and int32 indices (B, n, 3).

    With fewer than three known points the rest is index 0 at distance infinity.
    """
    return _three_nn(unknown, known, pad=True)


def three_interpolate(
    features: torch.Tensor, idx: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    """(B, C, m), (B, n, 3), (B, n, 3) -> (B, C, n)."""
    return _three_interpolate(features, idx, weight)


def ball_query(
    radius: float, nsample: int, xyz: torch.Tensor, new_xyz: torch.Tensor
) -> torch.Tensor:
    """(B, N, 3), (B, n, 3) -> (B, n, nsample) int32: the first hits, then the first hit again.

    A query without any hit is all zeros.
    """
    hits = _ball_query(new_xyz.detach(), xyz.detach(), radius, nsample, repeat_first=True)
    return hits[1].int()


class FurthestPointSampling:
    """Functional form of `furthest_point_sample`."""

    apply = staticmethod(furthest_point_sample)


class GatherOperation:
    """Functional form of `gather_operation`."""

    apply = staticmethod(gather_operation)


class GroupingOperation:
    """Functional form of `grouping_operation`."""

    apply = staticmethod(grouping_operation)


class ThreeNN:
    """Functional form of `three_nn`."""

    apply = staticmethod(three_nn)


class ThreeInterpolate:
    """Functional form of `three_interpolate`."""

    apply = staticmethod(three_interpolate)


class BallQuery:
    """Functional form of `ball_query`."""

    apply = staticmethod(ball_query)


class QueryAndGroup(torch.nn.Module):
    """Neighbourhoods of a ball query: relative positions, then features."""

    def __init__(self, radius: float, nsample: int, use_xyz: bool = True) -> None:
        super().__init__()
        self.radius, self.nsample, self.use_xyz = radius, nsample, use_xyz

    def forward(
        self, xyz: torch.Tensor, new_xyz: torch.Tensor, features: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(B, N, 3), (B, n, 3), (B, C, N) -> (B, 3 + C, n, nsample)."""
        idx = ball_query(self.radius, self.nsample, xyz, new_xyz)
        if features is not None and not self.use_xyz:
            return group(features, idx)
        if not self.use_xyz:
            raise ValueError("features must be given when use_xyz is False, got None")
        offsets = group_offsets(xyz, new_xyz, idx)
        return offsets if features is None else torch.cat([offsets, group(features, idx)], 1)


class GroupAll(torch.nn.Module):
    """The whole cloud as one neighbourhood."""

    def __init__(self, use_xyz: bool = True) -> None:
        super().__init__()
        self.use_xyz = use_xyz

    def forward(
        self,
        xyz: torch.Tensor,
        new_xyz: torch.Tensor | None = None,
        features: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(B, N, 3), ignored, (B, C, N) -> (B, 3 + C, 1, N)."""
        positions = xyz.transpose(1, 2)[:, :, None]
        if features is None:
            return positions
        columns = features[:, :, None]
        return torch.cat([positions, columns], 1) if self.use_xyz else columns
