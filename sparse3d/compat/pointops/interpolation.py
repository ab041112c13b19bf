"""pointops.interpolation."""

from __future__ import annotations

import torch

from .grouping import rows_at
from .query import knn_query


def interpolation(
    xyz: torch.Tensor,
    new_xyz: torch.Tensor,
    feat: torch.Tensor,
    offset: torch.Tensor,
    new_offset: torch.Tensor,
    k: int = 3,
) -> torch.Tensor:
    """(m, 3), (n, 3), (m, c) -> (n, c): mean of k neighbours weighted by 1 / (distance + 1e-8)."""
    idx, distance = knn_query(k, xyz, offset, new_xyz, new_offset)
    closeness = torch.where(idx >= 0, 1.0 / (distance + 1e-8), 0)
    weight = closeness / closeness.sum(1, keepdim=True)
    return (rows_at(feat, idx) * weight[..., None].to(feat.dtype)).sum(1)


interpolation2 = interpolation
