"""float32 operands as pairs of float16 terms."""

from __future__ import annotations

from typing import NamedTuple

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


def in_terms(first: torch.Tensor, second: torch.Tensor) -> Terms:
    """Both contiguous float32 tensors, as rows of their last axis, in terms of one scale each."""
    device, index = first.device, first.get_device()
    widths = (first.shape[-1], second.shape[-1])
    sizes = (first.numel(), second.numel())
    rows = [size // width for size, width in zip(sizes, widths, strict=True)]
    largest = torch.zeros(2, dtype=_I32, device=device)
    blocks = -(-sizes[0] // _BLOCK)
    grid = (blocks + -(-sizes[1] // _BLOCK), 1, 1)
    _find(_FIND, grid, (first, second, largest), (blocks, *sizes), index)
    made = tuple(
        torch.empty((count, 2 * width), dtype=_F16, device=device)
        for count, width in zip(rows, widths, strict=True)
    )
    bn = min(128, max(16, 1 << (max(widths) - 1).bit_length()))
    bm, v = _CELLS // bn, vector(*widths)
    blocks = -(-rows[0] // bm)
    grid = (blocks + -(-rows[1] // bm), -(-max(widths) // bn), 1)
    variant = Variant((_F32, _F32, _F16, _F16, _I32), (v, bm, bn), 4)
    scalars = (blocks, rows[0], widths[0] // v, rows[1], widths[1] // v)
    _split(variant, grid, (first, second, *made, largest), scalars, index)
    return Terms(made[0], made[1], largest)
