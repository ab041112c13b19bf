"""Stable radix sort on the device, for the other launch modules."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

from . import _shader

_DIGIT_BITS = 9
_BLOCKS, _MORE_BLOCKS, _MANY = 128, 256, 1 << 20
"""Threadgroups that fill a GPU, and those for many rows: each counts what all others have of its
digits."""
_STEP = 512
_MOST_EACH = 127 * _STEP
"""What a threadgroup counts in 16 bits."""
_SIZES = (512, 256, 128, 64, 32)


class Passes(NamedTuple):
    """How items are sorted: rows of a threadgroup's block, blocks, bits of a digit, passes."""

    each: int
    blocks: int
    width: int
    number: int

    @property
    def entries(self) -> int:
        """Of `counts`, [number, blocks, 1 << width]."""
        return self.number * self.blocks << self.width


@lru_cache(1024)
def passes(rows: int, bits: int) -> Passes:
    """The passes that sort `rows` keys, at least one, below 2**bits."""
    blocks = _BLOCKS if rows < _MANY else _MORE_BLOCKS
    each = min(_MOST_EACH, -(-rows // (blocks * _STEP)) * _STEP)
    number = max(1, -(-bits // _DIGIT_BITS))
    return Passes(each, -(-rows // each), max(1, -(-bits // number)), number)


def run(items: torch.Tensor, counts: torch.Tensor, rows: int, made: Passes) -> int:
    """Sort the first half of int64 items [2 * rows], a key in the high word and a row in the low
    one, by key.

    Args:
        items: the second half is room.
        counts: int32; of the first pass [blocks, 1 << width] how many items of each block have
            each digit, and zeros.
        rows: number of items.
        made: by `passes`.

    Returns:
        The half that holds the sorted items.
    """
    kernels, size = _kernels(items)
    arguments = (items, counts, rows, made.each, made.width, made.number)
    values, count = range(made.number), (made.blocks,)
    _shader.series(kernels, "sp_sort_pass", *arguments, values=values, count=count, size=size)
    return made.number & 1


def _kernels(like: torch.Tensor) -> tuple[_shader.Library, int]:
    """sort.metal for the largest threadgroups that the GPU runs, and their size."""
    choices = ((_shader.library("sort", SP_SORT_THREADS=size), size) for size in _SIZES)
    return _shader.first_that_fits(like, "sp_sort_pass", choices)


def sort(keys: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Stable sort of non-negative int32 keys below 2**bits: (sorted keys, their former positions),
    both int32."""
    n = keys.numel()
    if n < 2:
        return keys, torch.arange(n, dtype=torch.int32, device=keys.device)
    made = passes(n, bits)
    items = torch.empty(2 * n, dtype=torch.int64, device=keys.device)
    counts = torch.empty(made.entries, dtype=torch.int32, device=keys.device)
    kernels, size = _kernels(keys)
    arguments = (keys, items, counts, n, made.each, made.width, made.number)
    _shader.groups(kernels, "sp_sort_items", *arguments, count=(made.blocks,), size=size)
    half = run(items, counts, n, made)
    keys_out, rows = torch.empty_like(keys), torch.empty_like(keys)
    _shader.each(kernels, "sp_sort_split", items, keys_out, rows, n, half, threads=n)
    return keys_out, rows
