"""`flex_gemm.ops.grid_sample`."""

from __future__ import annotations

import torch

from ....ops.sample import sample_grid
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
    return sample_grid(feats, coords, grid, mode)


grid_sample_3d_torch = grid_sample_3d
