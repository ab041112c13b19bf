"""Sparse rows into a dense grid and back on Metal."""

import math
from typing import Any

import torch

from ..ops.dense import dense_gather, dense_scatter
from . import _shader

_INT32_MAX = 2**31 - 1


def _takes(values: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(values)


def _kernels(values: torch.Tensor, coords: torch.Tensor) -> Any:
    return _shader.library("dense", SP_COLS=coords.shape[1], SP_ELEM=_shader.element(values.dtype))


@dense_scatter.kernel("metal", "cuda", when=_takes)
def _scatter(
    features: torch.Tensor, coords: torch.Tensor, batch_size: int, shape: list[int]
) -> torch.Tensor:
    n, channels = features.shape
    cells = batch_size * math.prod(shape)
    dense = features.new_zeros((batch_size, *shape, channels))
    if n == 0 or dense.numel() == 0:
        return dense
    coords, kernels, sizes = coords.contiguous(), _kernels(features, coords), list(shape)
    owner = torch.full((cells,), _INT32_MAX, dtype=torch.int32, device=coords.device)
    _shader.each(kernels, "sp_dense_owner", coords, owner, n, sizes, threads=n)
    arguments = (features.contiguous(), coords, owner, dense, channels, n, sizes)
    _shader.each(kernels, "sp_dense_scatter", *arguments, threads=(channels, n))
    return dense


@dense_gather.kernel("metal", "cuda", when=_takes)
def _gather(dense: torch.Tensor, coords: torch.Tensor) -> torch.Tensor:
    n, channels = coords.shape[0], dense.shape[-1]
    out = dense.new_empty((n, channels))
    if out.numel():
        sizes = list(dense.shape[1:-1])
        arguments = (dense.contiguous(), coords.contiguous(), out, channels, n, sizes)
        _shader.each(_kernels(dense, coords), "sp_dense_gather", *arguments, threads=(channels, n))
    return out
