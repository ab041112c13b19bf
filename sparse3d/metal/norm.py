"""Batch normalisation in training on Metal."""

from typing import Any

import torch

from ..ops._conv_reference import CHUNK
from ..ops.norm import batch_norm_grad, batch_norm_train
from . import _shader

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _takes(values: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(values)


def _kernels(values: torch.Tensor) -> Any:
    return _shader.library("norm", SP_ELEM=_shader.element(values.dtype))


def _total(kernels: Any, partial: torch.Tensor, divisor: float) -> torch.Tensor:
    chunks, channels = partial.shape
    out = partial.new_empty(channels)
    arguments = (partial, out, channels, chunks, float(divisor))
    _shader.each(kernels, "sp_norm_total", *arguments, threads=channels)
    return out


def _float(value: torch.Tensor | None, like: torch.Tensor, fill: float) -> torch.Tensor:
    """A per-channel argument as float32; `fill` stands for None."""
    if value is None:
        return torch.full_like(like, fill)
    return value.detach().float().contiguous()


@batch_norm_train.kernel("metal", "cuda", when=_takes)
def _train(
    features: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> Triple:
    rows, channels = features.shape
    mean = torch.zeros(channels, dtype=torch.float32, device=features.device)
    var, out = torch.zeros_like(mean), torch.empty_like(features)
    if features.numel() == 0:
        return out, mean, var
    features, kernels, chunks = features.contiguous(), _kernels(features), -(-rows // CHUNK)
    out = torch.empty_like(features)
    partial = mean.new_empty((chunks, channels))
    for squared in (0, 1):
        arguments = (features, mean, partial, channels, rows, squared)
        _shader.each(kernels, "sp_norm_sums", *arguments, threads=(channels, chunks))
        total = _total(kernels, partial, rows)
        mean, var = (mean, total) if squared else (total, var)
    factors = (_float(weight, mean, 1.0), _float(bias, mean, 0.0), mean, var)
    apply = (features, *factors, out, channels, rows, float(eps))
    _shader.each(kernels, "sp_norm_apply", *apply, threads=(channels, rows))
    return out, mean, var


@batch_norm_grad.kernel("metal", "cuda", when=_takes)
def _grad(
    grad: torch.Tensor,
    features: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> Triple:
    rows, channels = features.shape
    if features.numel() == 0:
        return torch.empty_like(features), torch.zeros_like(mean), torch.zeros_like(mean)
    grad, features, mean, var = (v.contiguous() for v in (grad, features, mean, var))
    kernels, chunks = _kernels(features), -(-rows // CHUNK)
    plain, weighted = mean.new_empty((chunks, channels)), mean.new_empty((chunks, channels))
    sums = (grad, features, mean, var, plain, weighted, channels, rows, float(eps))
    _shader.each(kernels, "sp_norm_grad_sums", *sums, threads=(channels, chunks))
    to_weight, to_bias = _total(kernels, weighted, 1.0), _total(kernels, plain, 1.0)
    out = torch.empty_like(features)
    factors = (_float(weight, mean, 1.0), mean, var, to_weight, to_bias)
    apply = (grad, features, *factors, out, channels, rows, float(eps))
    _shader.each(kernels, "sp_norm_grad_apply", *apply, threads=(channels, rows))
    return out, to_weight, to_bias
