"""Hashes of coordinates, look-ups, counts."""

from __future__ import annotations

import torch

from ..... import _check
from .....ops.keys import find_keys, fnv_hash
from .....ops.lattice import moved_by
from .....ops.segment import count_segments

__all__ = ["spcount", "sphash", "sphashquery"]

BITS = 60


def hash_of(coords: torch.Tensor, offsets: torch.Tensor | None, batch_column: int) -> torch.Tensor:
    """FNV hashes [N], or [K, N] of the coordinates moved by each offset [K, 3]."""
    _check.tensor("coords", coords, 2)
    if coords.dtype != torch.int32 or coords.shape[1] != 4:
        wanted = "int32 of shape [N, 4]"
        _check.fail_type("coords", wanted, f"{coords.dtype} {list(coords.shape)}")
    if offsets is None:
        return fnv_hash(coords, bits=BITS)
    return fnv_hash(moved_by(coords, offsets, batch_column=batch_column), bits=BITS)


def sphash(coords: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """FNV hashes int64 [N] of (batch, x, y, z), or [K, N] moved by each offset [K, 3]."""
    return hash_of(coords, offsets, 0)


def sphashquery(queries: torch.Tensor, references: torch.Tensor) -> torch.Tensor:
    """Place of each query among the references, -1 where it is not; of equal ones the first."""
    return find_keys(references, queries)


def spcount(coords: torch.Tensor, num: int | torch.Tensor) -> torch.Tensor:
    """How often each number in [0, num) occurs, int32."""
    return count_segments(coords, int(num)).int()
