"""Batch normalisation in training."""

from __future__ import annotations

import torch

from ..ops.conv import _accumulator
from ..ops.norm import batch_norm_grad, batch_norm_train
from ._library import DTYPES, address, call, threads
from ._memory import empty

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _wide(values: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | None:
    return None if values is None else values.detach().to(dtype).contiguous()


@batch_norm_train.kernel("cpu")
def _train(
    features: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> Three:
    features = features.contiguous()
    rows, channels = features.shape
    dtype = _accumulator(features.dtype)
    out = empty((rows, channels), features.dtype)
    mean, var = torch.empty(channels, dtype=dtype), torch.empty(channels, dtype=dtype)
    held = _wide(weight, dtype), _wide(bias, dtype)
    call(
        "s3d_norm_train",
        threads(),
        DTYPES[features.dtype],
        address(features),
        *map(address, held),
        rows,
        channels,
        eps,
        *map(address, (out, mean, var)),
    )
    return out, mean, var


@batch_norm_grad.kernel("cpu")
def _grad(
    grad: torch.Tensor,
    features: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    eps: float,
) -> Three:
    grad, features = grad.to(features.dtype).contiguous(), features.contiguous()
    rows, channels = features.shape
    held = _wide(weight, mean.dtype), mean.contiguous(), var.contiguous()
    out = empty((rows, channels), features.dtype)
    to_weight, to_bias = torch.empty_like(mean), torch.empty_like(mean)
    call(
        "s3d_norm_grad",
        threads(),
        DTYPES[features.dtype],
        address(grad),
        address(features),
        *map(address, held),
        rows,
        channels,
        eps,
        *map(address, (out, to_weight, to_bias)),
    )
    return out, to_weight, to_bias
