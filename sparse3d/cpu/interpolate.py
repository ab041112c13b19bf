"""Weighted sums of three columns."""

from __future__ import annotations

import torch

from ..pointops.interpolate import interpolate_columns
from ._library import DTYPES, address, call, threads


@interpolate_columns.kernel("cpu")
def _interpolate_columns(
    features: torch.Tensor, idx: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    wide, idx, weight = (
        features.to(weight.dtype).contiguous(),
        idx.contiguous(),
        weight.contiguous(),
    )
    batch, channels, columns = wide.shape
    out = torch.empty((batch, channels, idx.shape[1]), dtype=wide.dtype)
    call(
        "s3d_interpolate_columns",
        DTYPES[wide.dtype],
        address(wide),
        address(idx),
        address(weight),
        batch,
        channels,
        columns,
        idx.shape[1],
        threads(),
        address(out),
    )
    return out.to(features.dtype)
