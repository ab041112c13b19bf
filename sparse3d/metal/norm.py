"""Batch normalisation in training on Metal, with a residual and ReLU in the same passes."""

from typing import Any

import torch

from ..ops._conv_reference import CHUNK
from ..ops.norm import (
    batch_norm_grad,
    batch_norm_relu_again,
    batch_norm_relu_grad,
    batch_norm_relu_train,
    batch_norm_train,
)
from . import _shader

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
Pair = tuple[torch.Tensor | None, torch.Tensor | None]

_PLAIN, _RELU, _SUM_RELU = 0, 1, 2  # must match norm.metal


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


def _factors(
    pair: tuple[torch.Tensor | None, torch.Tensor | None], like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and shift of the channels as float32; ones and zeros stand for None."""
    return _float(pair[0], like, 1.0), _float(pair[1], like, 0.0)


def _float(value: torch.Tensor | None, like: torch.Tensor, fill: float) -> torch.Tensor:
    if value is None:
        return torch.full_like(like, fill)
    return value.detach().float().contiguous()


def _statistics(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of the columns, in two passes over contiguous rows."""
    rows, channels = features.shape
    mean = torch.zeros(channels, dtype=torch.float32, device=features.device)
    var = torch.zeros_like(mean)
    if features.numel() == 0:
        return mean, var
    kernels, chunks = _kernels(features), -(-rows // CHUNK)
    partial = mean.new_empty((chunks, channels))
    for squared in (0, 1):
        arguments = (features, mean, partial, channels, rows, squared)
        _shader.each(kernels, "sp_norm_sums", *arguments, threads=(channels, chunks))
        total = _total(kernels, partial, rows)
        mean, var = (mean, total) if squared else (total, var)
    return mean, var


def _apply(
    features: torch.Tensor,
    factors: Pair,
    statistics: tuple[torch.Tensor, torch.Tensor],
    residual: torch.Tensor | None,
    eps: float,
    mode: int,
) -> torch.Tensor:
    (rows, channels), out = features.shape, torch.empty_like(features)
    side = features if residual is None else residual.contiguous()
    tensors = (features, *_factors(factors, statistics[0]), *statistics, side, out)
    numbers = (channels, rows, float(eps), mode)
    _shader.each(_kernels(features), "sp_norm_apply", *tensors, *numbers, threads=(channels, rows))
    return out


def _gradients(
    grad: torch.Tensor,
    features: torch.Tensor,
    factors: Pair,
    made: torch.Tensor | None,
    statistics: tuple[torch.Tensor, torch.Tensor],
    eps: float,
    mode: int,
) -> Four:
    """To features, weight, bias and the residual."""
    rows, channels = features.shape
    mean, var = (value.contiguous() for value in statistics)
    features, side = features.contiguous(), features.new_empty((0, channels))
    to_residual = side if made is None else torch.empty_like(features)
    if features.numel() == 0:
        none = torch.zeros_like(mean)
        return torch.empty_like(features), none, none.clone(), to_residual
    grad = grad.to(features.dtype).contiguous()
    kernels, chunks = _kernels(features), -(-rows // CHUNK)
    shown = features if made is None else made.contiguous()
    given = (grad, features, *_factors(factors, mean), mean, var, shown)
    numbers = (channels, rows, float(eps), mode)
    plain, weighted = mean.new_empty((chunks, channels)), mean.new_empty((chunks, channels))
    sums = (*given, plain, weighted, *numbers)
    _shader.each(kernels, "sp_norm_grad_sums", *sums, threads=(channels, chunks))
    to_weight, to_bias = _total(kernels, weighted, 1.0), _total(kernels, plain, 1.0)
    out = torch.empty_like(features)
    apply = (*given, to_weight, to_bias, out, to_residual, *numbers)
    _shader.each(kernels, "sp_norm_grad_apply", *apply, threads=(channels, rows))
    return out, to_weight, to_bias, to_residual


@batch_norm_train.kernel("metal", when=_takes)
def train(
    features: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> Three:
    """Rows, mean and variance of `batch_norm_train`."""
    features = features.contiguous()
    statistics = _statistics(features)
    return _apply(features, (weight, bias), statistics, None, eps, _PLAIN), *statistics


@batch_norm_grad.kernel("metal", when=_takes)
def grad(
    grad: torch.Tensor,
    features: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> Three:
    """Gradients of `batch_norm_train` to features, weight and bias."""
    return _gradients(grad, features, (weight, None), None, (mean, var), eps, _PLAIN)[:3]


@batch_norm_relu_train.kernel("metal", "cuda", when=_takes)
def _relu_train(
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    eps: float,
) -> Three:
    features = features.contiguous()
    statistics, mode = _statistics(features), _RELU if residual is None else _SUM_RELU
    return _apply(features, (weight, bias), statistics, residual, eps, mode), *statistics


@batch_norm_relu_again.kernel("metal", "cuda", when=_takes)
def _relu_again(
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    statistics = mean.contiguous(), var.contiguous()
    return _apply(features.contiguous(), (weight, bias), statistics, None, eps, _RELU)


@batch_norm_relu_grad.kernel("metal", "cuda", when=_takes)
def _relu_grad(
    grad: torch.Tensor,
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> Four:
    mode = _RELU if out is None else _SUM_RELU
    return _gradients(grad, features, (weight, bias), out, (mean, var), eps, mode)
