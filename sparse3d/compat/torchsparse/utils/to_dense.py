"""Dense grids."""

from __future__ import annotations

import torch

from ....ops.dense import to_dense as _to_dense

__all__ = ["to_dense"]


def to_dense(
    feats: torch.Tensor, coords: torch.Tensor, spatial_range: tuple[int, ...]
) -> torch.Tensor:
    """Dense grid [B, X, Y, Z, C] of rows at (batch, x, y, z)."""
    batch, *spatial = spatial_range[:4]
    return _to_dense(feats, coords.int(), [int(n) for n in spatial], int(batch))
