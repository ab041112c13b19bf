"""Hashes of coordinates, look-ups, counts."""

from __future__ import annotations

import torch

from ..... import _check
from .....ops.coordinates import build_table, lookup

__all__ = ["spcount", "sphash", "sphashquery"]

OFFSET, PRIME = 14695981039346656037 - 2**64, 1099511628211


def _fnv(coords: torch.Tensor) -> torch.Tensor:
    keys = torch.full(coords.shape[:-1], OFFSET, dtype=torch.int64, device=coords.device)
    for column in coords.long().unbind(-1):
        keys = (keys ^ (column & 0xFFFFFFFF)) * PRIME
    return ((keys >> 60) & 0xF) ^ (keys & 0xFFFFFFFFFFFFFFF)


def hash_of(coords: torch.Tensor, offsets: torch.Tensor | None, batch_column: int) -> torch.Tensor:
    """FNV hashes [N], or [K, N] of the coordinates moved by each offset [K, 3]."""
    _check.tensor("coords", coords, 2)
    if coords.dtype != torch.int32 or coords.shape[1] != 4:
        wanted = "int32 of shape [N, 4]"
        _check.fail_type("coords", wanted, f"{coords.dtype} {list(coords.shape)}")
    if offsets is None:
        return _fnv(coords)
    zero = offsets.new_zeros((len(offsets), 1))
    parts = [zero, offsets] if batch_column == 0 else [offsets, zero]
    return _fnv(coords[None] + torch.cat(parts, 1).to(coords)[:, None])


def sphash(coords: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """FNV hashes int64 [N] of (batch, x, y, z), or [K, N] moved by each offset [K, 3]."""
    return hash_of(coords, offsets, 0)


def sphashquery(queries: torch.Tensor, references: torch.Tensor) -> torch.Tensor:
    """Place of each query among the references, -1 where it is not; of equal ones the first."""
    rows = _halves(references)
    found = lookup(rows, build_table(rows), _halves(queries.reshape(-1)))
    return found.long().reshape(queries.shape)


def _halves(keys: torch.Tensor) -> torch.Tensor:
    words = keys.contiguous().view(torch.int32).reshape(len(keys), 2)
    return torch.cat([words.new_zeros((len(keys), 1)), words], 1)


def spcount(coords: torch.Tensor, num: int | torch.Tensor) -> torch.Tensor:
    """How often each number in [0, num) occurs, int32."""
    inside = coords[coords >= 0].long().reshape(-1)
    return torch.bincount(inside, minlength=int(num))[: int(num)].int()
