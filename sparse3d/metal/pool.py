"""Pooling over a kernel map on Metal."""

from typing import Any

import torch

from ..ops.pool import pool_max, pool_max_grad, pool_sum
from . import _plan, _shader


def _takes(values: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(values)


def _kernels(values: torch.Tensor) -> Any:
    return _shader.library("pool", SP_ELEM=_shader.element(values.dtype))


@pool_sum.kernel("metal", "cuda", when=_takes)
def _sum(
    features: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_out: int
) -> torch.Tensor:
    channels = features.shape[1]
    out = features.new_zeros((num_out, channels))
    if src.numel() and out.numel():
        entries, _ = _plan.entries(dst.contiguous(), splits, num_out)
        shape = (channels, num_out, len(entries))
        arguments = (features.contiguous(), src.contiguous(), entries, out, *shape)
        _shader.each(_kernels(features), "sp_pool_sum", *arguments, threads=(channels, num_out))
    return out


@pool_max.kernel("metal", "cuda", when=_takes)
def _max(
    features: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_out: int
) -> tuple[torch.Tensor, torch.Tensor]:
    channels = features.shape[1]
    out = features.new_zeros((num_out, channels))
    arg = torch.full(out.shape, -1, dtype=torch.int32, device=out.device)
    if src.numel() and out.numel():
        entries, _ = _plan.entries(dst.contiguous(), splits, num_out)
        shape = (channels, num_out, len(entries))
        arguments = (features.contiguous(), src.contiguous(), entries, out, arg, *shape)
        _shader.each(_kernels(features), "sp_pool_max", *arguments, threads=(channels, num_out))
    return out, arg


@pool_max_grad.kernel("metal", "cuda", when=_takes)
def _max_grad(
    grad: torch.Tensor,
    arg: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    num_in: int,
) -> torch.Tensor:
    channels = grad.shape[1]
    out = grad.new_zeros((num_in, channels))
    if src.numel() and out.numel():
        entries, _ = _plan.entries(src.contiguous(), splits, num_in)
        shape = (channels, num_in, len(entries))
        arguments = (grad.contiguous(), arg.contiguous(), dst.contiguous(), entries, out, *shape)
        _shader.each(_kernels(grad), "sp_pool_max_grad", *arguments, threads=(channels, num_in))
    return out
