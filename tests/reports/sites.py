"""Short words for the reports: rows, layers by dimension, dense neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor

DIMS = (1, 2, 3, 4)


def rows(*sites: Sequence[int]) -> torch.Tensor:
    """Indices int32 [N, 1 + D]."""
    return torch.tensor(sites, dtype=torch.int32)


def layer(kind: str, ndim: int, *args: Any, **kwargs: Any) -> Any:
    """`sparse3d.nn`'s layer of that kind and dimension."""
    return getattr(spnn, f"{kind}{ndim}d")(*args, **kwargs)


def cloud(
    ndim: int,
    channels: int = 4,
    side: int = 5,
    batch: int = 2,
    share: float = 0.4,
    dtype: torch.dtype = torch.float32,
) -> SparseConvTensor:
    """Distinct random sites on a cube, batch ids mixed; features ask for gradients."""
    cells = side**ndim * batch
    chosen = torch.randperm(cells)[: max(1, int(cells * share))]
    columns = [chosen // side**ndim]
    columns += [chosen // side**power % side for power in reversed(range(ndim))]
    features = torch.randn(len(chosen), channels, dtype=dtype, requires_grad=True)
    return SparseConvTensor(features, torch.stack(columns, 1).int(), [side] * ndim, batch)


def at(dense: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Rows of a dense [B, C, *grid] at sites."""
    return dense.movedim(1, -1)[indices.long().unbind(1)]


def convolved(
    dense: torch.Tensor,
    kernel: torch.Tensor,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> torch.Tensor:
    """Dense convolution of [B, C, *grid] by [out, *k, in], 1 to 4 axes, as a sum over taps."""
    ndim = dense.ndim - 2
    sizes = kernel.shape[1:-1]
    grid = [(n + 2 * padding - dilation * (k - 1) - 1) // stride + 1
            for n, k in zip(dense.shape[2:], sizes, strict=True)]  # fmt: skip
    padded = F.pad(dense, [padding] * 2 * ndim)
    out = dense.new_zeros((dense.shape[0], kernel.shape[0], *grid))
    for flat in range(prod(sizes)):
        tap, rest = [], flat
        for size in reversed(sizes):
            tap.append(rest % size)
            rest //= size
        tap.reverse()
        view = padded
        for axis, (t, n) in enumerate(zip(tap, grid, strict=True)):
            places = torch.arange(n) * stride + t * dilation
            view = view.index_select(axis + 2, places)
        weight = kernel.reshape(kernel.shape[0], -1, kernel.shape[-1])[:, flat]
        out = out + torch.einsum("bc...,oc->bo...", view, weight)
    return out
