"""Rows into a dense grid and out of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..ops.dense import dense_gather, dense_scatter
from ._library import address, call, longs, threads


@dense_scatter.kernel("cpu")
def _scatter(
    features: torch.Tensor, coords: torch.Tensor, batch_size: int, shape: Sequence[int]
) -> torch.Tensor:
    features, coords = features.contiguous(), coords.contiguous()
    channels = features.shape[1]
    out = torch.empty((batch_size, *shape, channels), dtype=features.dtype)
    call(
        "s3d_dense_scatter",
        threads(),
        address(features),
        channels * features.element_size(),
        address(coords),
        coords.shape[0],
        coords.shape[1] - 1,
        batch_size,
        longs(shape),
        address(out),
    )
    return out


@dense_gather.kernel("cpu")
def _gather(dense: torch.Tensor, coords: torch.Tensor) -> torch.Tensor:
    dense, coords = dense.contiguous(), coords.contiguous()
    channels = dense.shape[-1]
    out = torch.empty((coords.shape[0], channels), dtype=dense.dtype)
    call(
        "s3d_dense_gather",
        threads(),
        address(dense),
        channels * dense.element_size(),
        address(coords),
        coords.shape[0],
        coords.shape[1] - 1,
        dense.shape[0],
        longs(dense.shape[1:-1]),
        address(out),
    )
    return out
