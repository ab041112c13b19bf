"""The definitions by name: dense operators run by their torch references on any device."""

from __future__ import annotations

import torch

from sparse3d._registry import force

from . import ball_query as _ball_query
from . import furthest_point_sample as _furthest_point_sample
from . import knn as _knn


def furthest_point_sample(
    xyz: torch.Tensor, npoint: int, start_idx: int = 0, skip_near_origin: bool = False
) -> torch.Tensor:
    """`pointops.furthest_point_sample` by its reference."""
    with force("reference"):
        return _furthest_point_sample(xyz, npoint, start_idx, skip_near_origin)


def knn(query: torch.Tensor, ref: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`pointops.knn` by its reference."""
    with force("reference"):
        return _knn(query, ref, k)


def ball_query(
    query: torch.Tensor, ref: torch.Tensor, radius: float, K: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """`pointops.ball_query` by its reference."""
    with force("reference"):
        return _ball_query(query, ref, radius, K)
