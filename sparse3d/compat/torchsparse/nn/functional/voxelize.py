"""Points to voxels and back."""

from __future__ import annotations

import torch

from ..... import _check
from .....ops.segment import means_by_counts
from .....ops.voxelize import interpolate, shares_present, trilinear_weights

__all__ = ["calc_ti_weights", "spdevoxelize", "spvoxelize"]


def spvoxelize(feats: torch.Tensor, coords: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Mean of the points of each voxel.

    Args:
        feats: [N, C].
        coords: each point's voxel [N], -1 for none.
        counts: points of each voxel [M].
    """
    return means_by_counts(feats, coords.long(), counts)


def calc_ti_weights(
    coords: torch.Tensor, idx_query: torch.Tensor, scale: float = 1
) -> torch.Tensor:
    """Trilinear weights [N, 8] of the corners of each point's cell, last axis fastest.

    Corners that are not there weigh 0, and the others share the sum 1.

    Args:
        coords: points [N, 3 or more], x, y, z first.
        idx_query: rows of the corners [N, 8], -1 where there is none.
        scale: edge of a cell.

    Raises:
        ValueError: if `idx_query` is of another shape, as version 1.4's [8, N].
    """
    if list(idx_query.shape) != [len(coords), 8]:
        way_out = "transpose it, or install version 1.4: torchsparse==1.4.0"
        _check.fail("idx_query", f"of shape {[len(coords), 8]}", list(idx_query.shape), way_out)
    with torch.no_grad():
        weights = trilinear_weights(coords[:, :3], scale)
        return shares_present(idx_query, weights, 1e-8)


def spdevoxelize(feats: torch.Tensor, coords: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sums of voxel features.

    Args:
        feats: [M, C].
        coords: rows of the corners [N, 8], -1 where there is none.
        weights: [N, 8].
    """
    rows, shares = coords.int().contiguous(), weights.to(feats.dtype).contiguous()
    made: torch.Tensor = interpolate(feats.contiguous(), rows, shares)
    return made
