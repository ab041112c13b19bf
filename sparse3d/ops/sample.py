"""Sites' features at points of their own grid: nearest, or trilinear between the sites present.

    nearest:   features of the site whose cell [c, c + 1) the point lies in
    trilinear: sum of w_c features[c] over the 2^D sites c around, sum of w_c present = 1,
               a site's value at the centre of its cell, c + 1/2

*Shapes.* features [N, C], coords int32 [N, 1 + D], points [B, L, D], result [B, L, C]. *Padding.* 0
where no site is near. *Gradient.* To features.
"""

from __future__ import annotations

import torch

from .. import _check
from .coordinates import build_table, lookup
from .voxelize import devoxelize

__all__ = ["sample_grid"]

MODES = ("nearest", "trilinear")


def sample_grid(
    features: torch.Tensor, coords: torch.Tensor, points: torch.Tensor, mode: str = "trilinear"
) -> torch.Tensor:
    """Features at points of each sample.

    Args:
        features: [N, C].
        coords: int32 [N, 1 + D], batch id first.
        points: floating [B, L, D], in units of cells.
        mode: "nearest" or "trilinear".

    Returns:
        [B, L, C].

    Raises:
        ValueError: if shapes do not fit, or `mode` is another word.
        TypeError: if dtypes are not floating / int32.

    Example:
        >>> sites = torch.tensor([[0, 0, 0], [0, 0, 1]], dtype=torch.int32)
        >>> rows, at = torch.tensor([[1.0], [3.0]]), torch.tensor([[[0.5, 1.0], [0.5, 1.9]]])
        >>> sample_grid(rows, sites, at).tolist()
        [[[2.0], [3.0]]]
    """
    _check.coordinates("coords", coords)
    axes = coords.shape[1] - 1
    if _check.tensor("points", points, 3).shape[2] != axes:
        _check.fail("points", f"of shape [B, L, {axes}]", list(points.shape))
    if mode not in MODES:
        _check.fail("mode", "'nearest' or 'trilinear'", repr(mode))
    batch, length = points.shape[:2]
    sample = torch.arange(batch, device=points.device, dtype=points.dtype)
    column = sample[:, None, None].expand(batch, length, 1).reshape(-1, 1)
    flat = points.reshape(-1, axes)
    if mode == "nearest":
        cells = torch.cat([column, flat.floor()], 1).int()
        out = devoxelize(features, lookup(coords, build_table(coords), cells).long())
    else:
        moved = torch.cat([column, flat - 0.5], 1).to(features.dtype)
        out = devoxelize(features, coords=coords, points=moved, renormalize=True)
    return out.reshape(batch, length, -1)
