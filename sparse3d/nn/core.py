"""Names of `spconv.core` and `spconv.pytorch.core` that user code reads."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import torch

from .. import _check
from ..geometry import normalize
from ..tensor import IndiceData, SparseConvTensor

__all__ = [
    "AlgoHint",
    "ConvAlgo",
    "ImplicitGemmIndiceData",
    "IndiceData",
    "SparseConvTensor",
    "ThrustSortAllocator",
    "expand_nd",
    "scatter_nd",
]


class ConvAlgo(Enum):
    """spconv's algorithm names. Accepted and recorded; the backend chooses its own."""

    Native = 0
    MaskImplicitGemm = 1
    MaskSplitImplicitGemm = 2


class AlgoHint(Enum):
    """spconv's tuning hints. Accepted; nothing reads them."""

    NoHint = 0
    Fowrard = 1
    BackwardInput = 2
    BackwardWeight = 4


ImplicitGemmIndiceData = IndiceData


class ThrustSortAllocator:
    """A byte buffer that grows; kept for code that hands one over.

    Args:
        device: of the buffer.
    """

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.alloced_objs: dict[int, torch.Tensor] = {}

    def alloc(self, n: int) -> int:
        """Address of a buffer of at least `n` bytes, kept until `n` grows past it."""
        for size, kept in self.alloced_objs.items():
            if n <= size:
                return kept.data_ptr()
        made = torch.empty(_check.positive("n", n), dtype=torch.uint8, device=self.device)
        self.alloced_objs = {n: made}
        return made.data_ptr()


def scatter_nd(indices: torch.Tensor, updates: torch.Tensor, shape: Iterable[int]) -> torch.Tensor:
    """A zero tensor of `shape` with `updates` written at `indices`.

    Args:
        indices: integers [..., k], positions on the first k axes.
        updates: [..., *shape[k:]].
        shape: of the result.
    """
    out = torch.zeros(*shape, dtype=updates.dtype, device=updates.device)
    positions = indices.reshape(-1, indices.shape[-1]).long()
    out[tuple(positions.unbind(1))] = updates.reshape(
        len(positions), *out.shape[positions.shape[1] :]
    )
    return out


def expand_nd(ndim: int, val: int | Iterable[int]) -> list[int]:
    """One integer an axis."""
    values = val if isinstance(val, int) else [int(value) for value in val]
    return list(normalize("val", values, ndim, -(2**31)))
