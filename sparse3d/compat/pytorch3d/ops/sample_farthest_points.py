"""pytorch3d.ops.sample_farthest_points."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ....pointops import padded
from .utils import masked_gather


def sample_farthest_points(
    points: torch.Tensor,
    lengths: torch.Tensor | None = None,
    K: int | Sequence[int] | torch.Tensor = 50,
    random_start_point: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Farthest points (N, max K, D), padded with 0, and int64 indices, padded with -1.

    Taken points stay in the race, as in pytorch3d; a cloud with fewer than K points gives them all.
    Distances and the returned points are float32, whatever the points are.
    """
    indices = padded.sample_farthest_points(points, lengths, K, random_start_point)
    return masked_gather(points.float(), indices), indices


sample_farthest_points_naive = sample_farthest_points
