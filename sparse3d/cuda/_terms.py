"""float32 operands as pairs of float16 terms."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from . import _triton_terms as kernels
from ._launcher import Launcher, Variant

__all__ = ["Terms", "in_terms", "vector"]

_BLOCK, _CELLS = 4096, 4096
_F32, _F16, _I32 = torch.float32, torch.float16, torch.int32

_find = Launcher(kernels.find_largest)
_split = Launcher(kernels.split_terms)
_FIND = Variant((_F32, _F32, _I32), (_BLOCK,), 4)


class Terms(NamedTuple):
    """Two tensors [rows, 2 * width] of high and low terms, and what they were scaled by."""

    first: torch.Tensor
    second: torch.Tensor
    largest: torch.Tensor


def vector(*sizes: int) -> int:
    """The largest of 8, 4, 2 and 1 that divides all sizes."""
    joined = 8
    for size in sizes:
        joined |= size
    return joined & -joined


@lru_cache(1024)
def _launches(
    sizes: tuple[int, int], widths: tuple[int, int], device: int
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Kernel, grid and scalars that find the largest elements, and that write the terms."""
    blocks = -(-sizes[0] // _BLOCK)
    grid = (blocks + -(-sizes[1] // _BLOCK), 1, 1)
    found = (_find.bound(_FIND, device), grid, (blocks, *sizes))
    rows = [size // width for size, width in zip(sizes, widths, strict=True)]
    bn = min(128, max(16, 1 << (max(widths) - 1).bit_length()))
    bm, v = _CELLS // bn, vector(*widths)
    blocks = -(-rows[0] // bm)
    grid = (blocks + -(-rows[1] // bm), -(-max(widths) // bn), 1)
    kernel = _split.bound(Variant((_F32, _F32, _F16, _F16, _I32), (v, bm, bn), 4), device)
    return found, (kernel, grid, (blocks, rows[0], widths[0] // v, rows[1], widths[1] // v))


def in_terms(first: torch.Tensor, second: torch.Tensor) -> Terms:
    """Both contiguous float32 tensors, as rows of their last axis, in terms of one scale each."""
    device, widths = first.device, (first.shape[-1], second.shape[-1])
    sizes = (first.numel(), second.numel())
    (find, find_grid, find_scalars), (split, split_grid, split_scalars) = _launches(
        sizes, widths, first.get_device()
    )
    largest = torch.zeros(2, dtype=_I32, device=device)
    find(find_grid, (first, second, largest), find_scalars)
    one, two = (
        torch.empty((size // width, 2 * width), dtype=_F16, device=device)
        for size, width in zip(sizes, widths, strict=True)
    )
    split(split_grid, (first, second, one, two, largest), split_scalars)
    return Terms(one, two, largest)
