"""Small helpers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .... import _check

__all__ = ["make_divisible", "make_ntuple", "make_tensor"]


def make_ntuple(x: Any, ndim: int) -> tuple[int, ...]:
    """One integer an axis."""
    if isinstance(x, torch.Tensor):
        values = [int(v) for v in x.reshape(-1).tolist()]
    elif isinstance(x, Sequence):
        values = [int(v) for v in x]
    else:
        values = [int(x)] * ndim
    if len(values) != ndim:
        _check.fail("argument", f"an integer or {ndim} integers", x)
    return tuple(values)


def make_tensor(x: Sequence[Any], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """A tensor of the values."""
    return torch.tensor(x, dtype=dtype, device=device)


def make_divisible(x: int, divisor: int) -> int:
    """The least multiple of `divisor` that is not below `x`."""
    return -(-x // divisor) * divisor
