"""Global pools and crops."""

from __future__ import annotations

from typing import Any

import torch

from ..... import _check
from .....ops.segment import reduce_segments, take_rows

__all__ = ["global_avg_pool", "global_max_pool", "spcrop"]


def _pool(inputs: Any, reduce: str) -> torch.Tensor:
    sites = inputs.sites()
    batch = sites.indices[:, 0].long()
    return reduce_segments(inputs.feats, batch, sites.batch_size, reduce)


def global_avg_pool(inputs: Any) -> torch.Tensor:
    """Mean of each sample, [B, C]."""
    return _pool(inputs, "mean")


def global_max_pool(inputs: Any) -> torch.Tensor:
    """Maximum of each sample, [B, C]."""
    return _pool(inputs, "max")


def spcrop(
    input: Any, coords_min: Any = None, coords_max: Any = None, *, parity: bool = False
) -> Any:
    """The rows with `coords_min <= (x, y, z) < coords_max`.

    Args:
        input: to crop.
        coords_min: 3 numbers, or None for no bound.
        coords_max: likewise.
        parity: compare the first three columns, as torchsparse 2.1 does (batch, x, y).
    """
    coords = input.coords
    column = 0 if parity or input.batch_column == 3 else 1
    places = coords[:, column : column + 3]
    keep = torch.ones(len(coords), dtype=torch.bool, device=coords.device)
    for bound, above in ((coords_min, True), (coords_max, False)):
        if bound is None:
            continue
        limit = torch.as_tensor(bound, device=coords.device).reshape(-1)
        if len(limit) != 3:
            _check.fail("bounds", "3 numbers", limit.tolist())
        keep &= ((places >= limit) if above else (places < limit)).all(1)
    rows = keep.nonzero()[:, 0]
    return type(input)(take_rows(input.feats, rows), coords[rows], input.stride)
