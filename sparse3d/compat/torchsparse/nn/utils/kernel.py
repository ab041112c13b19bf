"""Kernel offsets in the peer's order."""

from __future__ import annotations

import math
from typing import Any

import torch

from .....geometry import coarser, cube_offsets
from ...utils.utils import make_ntuple

__all__ = ["axis_starts", "get_kernel_offsets", "tap_order"]


def axis_starts(size: tuple[int, ...]) -> list[int]:
    """First offset of each axis: centred where odd, one below the corner of the upper half where
    even."""
    return [-(k // 2) + (1 - k % 2) for k in size]


def get_kernel_offsets(
    size: Any, stride: Any = 1, dilation: Any = 1, device: Any = "cpu"
) -> torch.Tensor:
    """Offsets int32 [K, 3]: x fastest for an odd number of taps, z fastest for an even one.

    Args:
        size: kernel size.
        stride: of the coordinates; offsets are its multiples.
        dilation: of the kernel.
        device: of the result.
    """
    sizes, strides, spreads = (make_ntuple(v, ndim=3) for v in (size, stride, dilation))
    step = coarser(strides, spreads)
    rows = [coarser(row, step) for row in _offsets(sizes)]
    return torch.tensor(rows, dtype=torch.int32, device=device)


def tap_order(size: tuple[int, ...]) -> list[int]:
    """For each tap with the last axis fastest, its number in the peer's order."""
    place = {offset: number for number, offset in enumerate(_offsets(size))}
    return [place[offset] for offset in cube_offsets(size, axis_starts(size))]


def _offsets(size: tuple[int, ...]) -> list[tuple[int, ...]]:
    first_fastest = math.prod(size) % 2 == 1
    return cube_offsets(size, axis_starts(size), first_fastest=first_fastest)
