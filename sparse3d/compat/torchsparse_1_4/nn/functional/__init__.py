"""`torchsparse.nn.functional` of version 1.4."""

from __future__ import annotations

from typing import Any

import torch

from .....geometry import coarser
from ....torchsparse.nn.functional import voxelize as _voxelize
from ....torchsparse.nn.functional.activation import leaky_relu, relu
from ....torchsparse.nn.functional.conv import conv3d
from ....torchsparse.nn.functional.hash import hash_of, spcount, sphashquery
from ....torchsparse.nn.functional.pooling import global_avg_pool, global_max_pool, spcrop
from ....torchsparse.nn.functional.voxelize import spdevoxelize, spvoxelize
from ....torchsparse.utils.utils import make_ntuple
from ...tensor import SparseTensor

__all__ = [
    "build_kernel_map",
    "calc_ti_weights",
    "conv3d",
    "global_avg_pool",
    "global_max_pool",
    "leaky_relu",
    "relu",
    "spcount",
    "spcrop",
    "spdevoxelize",
    "spdownsample",
    "sphash",
    "sphashquery",
    "spvoxelize",
]


def sphash(coords: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """FNV hashes int64 [N] of (x, y, z, batch), or [K, N] moved by each offset [K, 3]."""
    return hash_of(coords, offsets, 3)


def calc_ti_weights(
    coords: torch.Tensor, idx_query: torch.Tensor, scale: float = 1
) -> torch.Tensor:
    """Trilinear weights [8, N] of corners [8, N]; version 2.1 has the points first."""
    return _voxelize.calc_ti_weights(coords, idx_query.t(), scale).t()


def _strided(
    coords: torch.Tensor, stride: Any, kernel_size: Any, tensor_stride: Any
) -> tuple[SparseTensor, Any]:
    from ....torchsparse.nn.functional import _maps
    from ....torchsparse.nn.functional.conv.conv_config import resolved

    x = SparseTensor(coords.new_zeros((len(coords), 1), dtype=torch.float32), coords, tensor_stride)
    size, steps = (make_ntuple(v, ndim=3) for v in (kernel_size, stride))
    geometry = _maps.kernel_geometry(x, size, steps, (0, 0, 0), (1, 1, 1))
    return x, _maps.strided(x, geometry, resolved(None))


def spdownsample(
    coords: torch.Tensor, stride: Any = 2, kernel_size: Any = 2, tensor_stride: Any = 1
) -> torch.Tensor:
    """Sites of a strided layer: (x, y, z, batch), multiples of the new stride."""
    x, kept = _strided(coords, stride, kernel_size, tensor_stride)
    steps = make_ntuple(stride, ndim=3)
    return SparseTensor.from_indices(kept.outputs.indices, coarser(x.stride, steps))


def build_kernel_map(
    coords: torch.Tensor, kernel_size: Any = 2, stride: Any = 1, tensor_stride: Any = 1
) -> list[Any]:
    """Pairs (input row, output row) [P, 2] grouped by tap, pairs of each tap [K], and the row
    counts; taps with the last axis fastest."""
    x, kept = _strided(coords, stride, kernel_size, tensor_stride)
    pairs = torch.stack([kept.pairs.src, kept.pairs.dst], 1)
    sizes = (len(x.coords), len(kept.outputs))
    return [pairs, kept.pairs.pairs_per_tap().int(), sizes]
