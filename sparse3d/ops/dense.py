"""Sparse rows into a dense grid and back.

    dense[b, a_0, ..., a_{D-1}, :] = features[i]  where coords[i] = (b, a_0, ..., a_{D-1}), 0
    elsewhere

*Shapes.* features [N, C], coords int32 [N, 1 + D] inside the grid, dense [B, *shape, C] (channels
last). *Dtypes.* Any floating. *Duplicates.* The lowest row wins and alone takes a gradient in
`to_dense`. *Gradient.* Each is the other's. *Accumulation.* None. *Determinism.* Exact. *Range.*
Offsets are 64-bit: the grid may pass 2^31 cells, memory allowing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch

from .. import _check
from .._registry import Op
from .coordinates import coordinate_unique
from .segment import take_rows

__all__ = ["from_dense", "to_dense"]


def _offsets(coords: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    offset = coords[:, 0].long()
    for axis, size in enumerate(shape):
        offset = offset * size + coords[:, axis + 1]
    return offset


def _scatter_reference(
    features: torch.Tensor, coords: torch.Tensor, batch_size: int, shape: Sequence[int]
) -> torch.Tensor:
    """Write each row to its cell; the lowest row of a cell wins."""
    cells = batch_size * math.prod(shape)
    offset = _offsets(coords, shape)
    row = torch.arange(len(coords), device=coords.device)
    owner = torch.full((cells,), len(coords), dtype=torch.int64, device=coords.device)
    owner = owner.scatter_reduce(0, offset, row, "amin")
    winner = owner[offset] == row
    dense = features.new_zeros((cells, features.shape[1]))
    dense[offset[winner]] = features[winner]
    return dense.reshape(batch_size, *shape, features.shape[1])


def _gather_reference(dense: torch.Tensor, coords: torch.Tensor) -> torch.Tensor:
    """Read each row's cell."""
    flat = dense.reshape(-1, dense.shape[-1])
    return flat.index_select(0, _offsets(coords, dense.shape[1:-1]))


dense_scatter = Op(
    "dense_scatter(Tensor features, Tensor coords, SymInt batch_size, SymInt[] shape) -> Tensor",
    reference=_scatter_reference,
    fake=lambda features, coords, batch_size, shape: features.new_empty(
        (batch_size, *shape, features.shape[1])
    ),
)
dense_gather = Op(
    "dense_gather(Tensor dense, Tensor coords) -> Tensor",
    reference=_gather_reference,
    fake=lambda dense, coords: dense.new_empty((coords.shape[0], dense.shape[-1])),
)


def _scatter_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[1])


def _scatter_gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    (coords,) = ctx.saved_tensors
    return dense_gather(grad.contiguous(), coords), None, None, None


def _gather_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    dense, coords = inputs
    ctx.save_for_backward(coords)
    ctx.grid = (dense.shape[0], list(dense.shape[1:-1]))


def _gather_gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    (coords,) = ctx.saved_tensors
    return dense_scatter(grad.contiguous(), coords, *ctx.grid), None


dense_scatter.gradient(_scatter_gradient, _scatter_setup)
dense_gather.gradient(_gather_gradient, _gather_setup)


def to_dense(
    features: torch.Tensor, coords: torch.Tensor, spatial_shape: Sequence[int], batch_size: int
) -> torch.Tensor:
    """Dense grid of sparse rows, channels last.

    Args:
        features: [N, C].
        coords: int32 [N, 1 + D], (batch, *axes).
        spatial_shape: grid, D entries.
        batch_size: number of samples B.

    Returns:
        [B, *spatial_shape, C], 0 where no row is.

    Raises:
        ValueError: if a row lies outside the grid or the batch, naming column, value and limit.
        TypeError: if dtypes are not floating / int32.
    """
    _check.features("features", features)
    _check.coordinates("coords", coords)
    _check.same_device(features=features, coords=coords)
    _check.same_rows("features", features.shape[0], "coords", coords.shape[0])
    if len(spatial_shape) != coords.shape[1] - 1:
        _check.fail("spatial_shape", f"of {coords.shape[1] - 1} entries", list(spatial_shape))
    _check.indices_in_grid(coords, spatial_shape, batch_size)
    cells = batch_size * math.prod(spatial_shape)
    if cells * features.shape[1] * features.element_size() >= 1 << 63:
        way_out = "keep the tensor sparse, or cut a window out of it"
        _check.fail("spatial_shape", "of a grid that memory can address", cells, way_out)
    first, _ = coordinate_unique(coords)
    if len(first) != len(coords):
        features, coords = take_rows(features, first), coords[first]
    return cast(
        torch.Tensor, dense_scatter(features.contiguous(), coords, batch_size, list(spatial_shape))
    )


def from_dense(dense: torch.Tensor, coords: torch.Tensor) -> torch.Tensor:
    """Rows of a dense grid at given coordinates.

    Args:
        dense: [B, *shape, C].
        coords: int32 [N, 1 + D] inside it, distinct where a gradient is wanted.

    Returns:
        [N, C].

    Raises:
        ValueError: if a row lies outside the grid or the batch.
        TypeError: if dtypes are not floating / int32.
    """
    _check.coordinates("coords", coords)
    _check.tensor("dense", dense, coords.shape[1] + 1)
    _check.same_device(dense=dense, coords=coords)
    _check.indices_in_grid(coords, list(dense.shape[1:-1]), dense.shape[0])
    return cast(torch.Tensor, dense_gather(dense.contiguous(), coords))
