"""Batch normalisation in training."""

from __future__ import annotations

import ctypes

import torch

from ..ops._conv_reference import _accumulator
from ..ops.norm import (
    batch_norm_grad,
    batch_norm_relu_again,
    batch_norm_relu_grad,
    batch_norm_relu_train,
    batch_norm_train,
)
from ._library import DTYPES, NormCall, address, call, path, threads
from ._memory import empty

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _wide(values: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    return None if values is None else values.detach().to(dtype).contiguous()


def _call(
    name: str,
    features: torch.Tensor,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
    relu: bool,
    **tensors: torch.Tensor | None,
) -> None:
    """One of csrc/norm.cpp's functions; tensors by their names in NormCall."""
    request = NormCall(
        threads=threads(),
        path=path(),
        dtype=DTYPES[features.dtype],
        relu=relu,
        x=address(features),
        mean=address(mean),
        var=address(var),
        rows=features.shape[0],
        channels=features.shape[1],
        eps=eps,
        **{field: address(tensor) for field, tensor in tensors.items()},
    )
    call(name, ctypes.byref(request))


def _run_train(
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    eps: float,
    relu: bool,
    known: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> Three:
    """Rows, mean and variance; from known ones if given."""
    features = features.contiguous()
    residual = None if residual is None else residual.contiguous()
    rows, channels = features.shape
    dtype = _accumulator(features.dtype)
    out = empty((rows, channels), features.dtype)
    mean, var = known or (torch.empty(channels, dtype=dtype) for _ in range(2))
    mean, var = mean.contiguous(), var.contiguous()
    weight, bias = _wide(weight, dtype), _wide(bias, dtype)
    name = "s3d_norm_apply" if known else "s3d_norm_train"
    sides = {"weight": weight, "bias": bias, "side": residual}
    _call(name, features, mean, var, eps, relu, y=out, **sides)
    return out, mean, var


def _run_grad(
    grad: torch.Tensor,
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    out: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
    relu: bool,
) -> Four:
    grad, features = grad.to(features.dtype).contiguous(), features.contiguous()
    out = None if out is None else out.contiguous()
    rows, channels = features.shape
    weight, bias = _wide(weight, mean.dtype), _wide(bias, mean.dtype)
    mean, var = mean.contiguous(), var.contiguous()
    to_features = empty((rows, channels), features.dtype)
    to_residual = empty((0 if out is None else rows, channels), features.dtype)
    to_weight, to_bias = torch.empty_like(mean), torch.empty_like(mean)
    _call(
        "s3d_norm_grad",
        features,
        mean,
        var,
        eps,
        relu,
        weight=weight,
        bias=bias,
        side=out,
        grad=grad,
        y=to_features,
        dweight=to_weight,
        dbias=to_bias,
        dside=None if out is None else to_residual,
    )
    return to_features, to_weight, to_bias, to_residual


@batch_norm_train.kernel("cpu")
def _train(
    features: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> Three:
    return _run_train(features, weight, bias, None, eps, relu=False)


@batch_norm_grad.kernel("cpu")
def _grad(
    grad: torch.Tensor,
    features: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> Three:
    return _run_grad(grad, features, weight, None, None, mean, var, eps, relu=False)[:3]


@batch_norm_relu_train.kernel("cpu")
def _relu_train(
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    eps: float,
) -> Three:
    return _run_train(features, weight, bias, residual, eps, relu=True)


@batch_norm_relu_again.kernel("cpu")
def _relu_again(
    features: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    return _run_train(features, weight, bias, None, eps, relu=True, known=(mean, var))[0]


@batch_norm_relu_grad.kernel("cpu")
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
    return _run_grad(grad, features, weight, bias, out, mean, var, eps, relu=True)
