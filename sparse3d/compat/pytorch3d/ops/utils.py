"""pytorch3d.ops.utils: masked_gather."""

from __future__ import annotations

import torch

from ...._check import same_device
from ....pointops import _inputs


def masked_gather(points: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(N, P, D) at (N, K) or (N, K, M): rows by index, zeros where the index is -1."""
    if idx.ndim not in (2, 3):
        raise ValueError(f"idx must be of shape (N, K) or (N, K, M), got {list(idx.shape)}")
    _inputs.shaped("points", points, 3)
    _inputs.index("idx", idx, idx.ndim, max(points.shape[1], 1), pad=True)
    same_device(points=points, idx=idx)
    batch, dim = points.shape[0], points.shape[2]
    flat = idx.long().reshape(batch, -1, 1)
    if points.shape[1] == 0:
        return points.new_zeros((*idx.shape, dim))
    rows = points.gather(1, flat.clamp_min(0).expand(-1, -1, dim))
    return torch.where(flat >= 0, rows, 0).reshape(*idx.shape, dim)
