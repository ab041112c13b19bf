"""Kernel offsets in the peer's order."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

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
    starts = axis_starts(sizes)
    axes = [
        [(a + i) * s * d for i in range(k)]
        for a, k, s, d in zip(starts, sizes, strides, spreads, strict=True)
    ]
    if math.prod(sizes) % 2 == 1:
        rows = [[x, y, z] for z, y, x in itertools.product(*reversed(axes))]
    else:
        rows = [list(row) for row in itertools.product(*axes)]
    return torch.tensor(rows, dtype=torch.int32, device=device)


def tap_order(size: tuple[int, ...]) -> list[int]:
    """For each tap with the last axis fastest, its number in the peer's order."""
    if math.prod(size) % 2 == 0:
        return list(range(math.prod(size)))
    x, y, z = size
    return [i + x * (j + y * k) for i in range(x) for j in range(y) for k in range(z)]
