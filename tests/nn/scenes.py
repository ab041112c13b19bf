"""Small random sparse tensors for the layer tests."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from sparse3d import SparseConvTensor


def scene(
    channels: int = 4,
    rows: int = 80,
    shape: Sequence[int] = (8, 7, 6),
    batch_size: int = 2,
    dtype: torch.dtype = torch.float32,
) -> SparseConvTensor:
    """Distinct random sites, batch ids not in order."""
    cells = torch.randperm(batch_size * prod(shape))[:rows]
    columns = []
    for size in reversed(shape):
        columns.append(cells % size)
        cells = cells // size
    indices = torch.stack([cells, *reversed(columns)], 1).int()
    return SparseConvTensor(
        torch.randn(len(indices), channels, dtype=dtype), indices, list(shape), batch_size
    )


def at(dense: torch.Tensor, x: SparseConvTensor) -> torch.Tensor:
    """Rows of a dense [B, C, *shape] tensor at the sites of `x`."""
    columns = x.indices.long().unbind(1)
    return dense.movedim(1, -1)[columns]
