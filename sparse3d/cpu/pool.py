"""Pooling over a kernel map."""

from __future__ import annotations

import torch

from ..ops.pool import pool_max, pool_max_grad, pool_sum
from ._library import DTYPES, address, call, threads
from ._memory import empty
from .conv import ordered


@pool_sum.kernel("cpu")
def _sum(
    features: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_out: int
) -> torch.Tensor:
    features = features.contiguous()
    rows, channels = features.shape
    pairs = ordered(src, dst, splits, [], rows, num_out)
    out = empty((num_out, channels), features.dtype)
    call(
        "s3d_pool_sum",
        threads(),
        DTYPES[features.dtype],
        address(features),
        channels,
        address(pairs.rows_in),
        address(pairs.rows_out),
        address(pairs.splits),
        pairs.splits.shape[0] - 1,
        num_out,
        address(out),
    )
    return out


@pool_max.kernel("cpu")
def _max(
    features: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_out: int
) -> tuple[torch.Tensor, torch.Tensor]:
    features = features.contiguous()
    rows, channels = features.shape
    pairs = ordered(src, dst, splits, [], rows, num_out)
    out = empty((num_out, channels), features.dtype)
    arg = torch.empty((num_out, channels), dtype=torch.int32)
    call(
        "s3d_pool_max",
        threads(),
        DTYPES[features.dtype],
        address(features),
        channels,
        address(pairs.rows_in),
        address(pairs.rows_out),
        address(pairs.splits),
        pairs.splits.shape[0] - 1,
        num_out,
        address(out),
        address(arg),
    )
    return out, arg


@pool_max_grad.kernel("cpu")
def _max_grad(
    grad: torch.Tensor,
    arg: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    num_in: int,
) -> torch.Tensor:
    grad, arg = grad.contiguous(), arg.contiguous()
    rows, channels = grad.shape
    out = empty((num_in, channels), grad.dtype)
    call(
        "s3d_pool_max_grad",
        threads(),
        DTYPES[grad.dtype],
        address(grad),
        address(arg),
        rows,
        channels,
        num_in,
        address(out),
    )
    return out
