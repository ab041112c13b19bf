"""Gather columns of channel-first maps."""

from __future__ import annotations

import torch

from ..pointops.group import gather_columns
from ._library import address, call, threads
from ._points import table


@gather_columns.kernel("cpu")
def _gather_columns(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    features, rows = features.contiguous(), table(idx)
    batch, channels, columns = features.shape
    places = rows.shape[1]
    out = torch.empty((batch, channels, places), dtype=features.dtype)
    call(
        "s3d_gather_columns",
        features.element_size(),
        address(features),
        address(rows),
        batch,
        channels,
        columns,
        places,
        threads(),
        address(out),
    )
    return out
