"""`flex_gemm.ops.grid_sample`."""

from __future__ import annotations

import torch

from .... import _check
from ....ops.coordinates import build_table, lookup
from ....ops.voxelize import devoxelize
from .spconv import check_sites

__all__ = ["HASHMAP_RATIO", "grid_sample_3d", "grid_sample_3d_torch", "set_hashmap_ratio"]

HASHMAP_RATIO = 2.0


def set_hashmap_ratio(ratio: float) -> None:
    """Kept in `HASHMAP_RATIO`; nothing reads it."""
    global HASHMAP_RATIO  # noqa: PLW0603  (the peer's own)
    HASHMAP_RATIO = ratio


def grid_sample_3d(
    feats: torch.Tensor,
    coords: torch.Tensor,
    shape: tuple[int, ...],
    grid: torch.Tensor,
    mode: str = "trilinear",
) -> torch.Tensor:
    """Features at points: the nearest site's, or trilinear with the weights present sharing 1.

    Args:
        feats: [N, C].
        coords: int32 [N, 4], (batch, x, y, z); a site's value sits at its cell's centre.
        shape: (N, C, W, H, D).
        grid: points [B, L, 3] in units of cells.
        mode: "nearest" or "trilinear".

    Returns:
        [B, L, C]; 0 where no site is near.
    """
    check_sites(feats, coords, shape)
    batch, length = grid.shape[:2]
    sample = torch.arange(batch, device=grid.device, dtype=grid.dtype)
    sample = sample.repeat_interleave(length)[:, None]
    points = grid.reshape(-1, 3)
    if mode == "nearest":
        cells = torch.cat([sample, points.floor()], 1).int()
        rows = lookup(coords, build_table(coords), cells)
        out = devoxelize(feats, rows.long())
    elif mode == "trilinear":
        moved = torch.cat([sample, points - 0.5], 1).to(feats.dtype)
        out = devoxelize(feats, coords=coords, points=moved, renormalize=True)
    else:
        _check.fail("mode", "'nearest' or 'trilinear'", repr(mode))
    return out.reshape(batch, length, -1)


grid_sample_3d_torch = grid_sample_3d
