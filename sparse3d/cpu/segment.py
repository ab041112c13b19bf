"""Segment reductions."""

from __future__ import annotations

import torch

from ..ops.segment import segment_max, segment_sum
from ._library import DTYPES, address, call, threads


@segment_sum.kernel("cpu")
def _sum(values: torch.Tensor, ids: torch.Tensor, num: int) -> torch.Tensor:
    values, ids = values.contiguous(), ids.contiguous()
    rows, channels = values.shape
    out = torch.empty((num, channels), dtype=values.dtype)
    call(
        "s3d_segment_sum",
        threads(),
        DTYPES[values.dtype],
        address(values),
        channels,
        address(ids),
        rows,
        num,
        address(out),
    )
    return out


@segment_max.kernel("cpu")
def _max(values: torch.Tensor, ids: torch.Tensor, num: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, ids = values.contiguous(), ids.contiguous()
    rows, channels = values.shape
    out = torch.empty((num, channels), dtype=values.dtype)
    arg = torch.empty((num, channels), dtype=torch.int64)
    call(
        "s3d_segment_max",
        threads(),
        DTYPES[values.dtype],
        address(values),
        channels,
        address(ids),
        rows,
        num,
        address(out),
        address(arg),
    )
    return out, arg
