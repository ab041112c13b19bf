"""Activations."""

from __future__ import annotations

from typing import Any

from torch.nn import functional as F

from ..utils.apply import fapply

__all__ = ["leaky_relu", "relu", "silu"]


def relu(input: Any, inplace: bool = True) -> Any:
    """ReLU of the features."""
    return fapply(input, F.relu, inplace=inplace)


def silu(input: Any, inplace: bool = True) -> Any:
    """SiLU of the features."""
    return fapply(input, F.silu, inplace=inplace)


def leaky_relu(input: Any, negative_slope: float = 0.1, inplace: bool = True) -> Any:
    """Leaky ReLU of the features."""
    return fapply(input, F.leaky_relu, negative_slope=negative_slope, inplace=inplace)
