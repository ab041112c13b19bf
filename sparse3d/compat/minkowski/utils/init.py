"""Initialisation."""

from __future__ import annotations

import torch
from torch import nn

from .... import _check
from ....nn.initial import normal_by_fan_

__all__ = ["kaiming_normal_"]


def _calculate_fan_in_and_fan_out(tensor: torch.Tensor) -> tuple[int, int]:
    """Channels in and out, times the taps, of a kernel [K, C_in, C_out] or a matrix."""
    if tensor.ndim < 2 or 0 in tensor.shape:
        _check.fail("tensor", "a kernel [K, C_in, C_out] or a matrix", list(tensor.shape))
    if tensor.ndim == 2:
        return tensor.shape[1], tensor.shape[0]
    return tensor.shape[0] * tensor.shape[1], tensor.shape[0] * tensor.shape[2]


def _calculate_correct_fan(tensor: torch.Tensor, mode: str) -> int:
    """One of the two, by "fan_in" or "fan_out" in any case."""
    modes = ["fan_in", "fan_out"]
    if mode.lower() not in modes:
        _check.fail("mode", f"one of {modes}", repr(mode))
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]


def kaiming_normal_(
    tensor: torch.Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> torch.Tensor:
    """He initialisation of a kernel [K, C_in, C_out] or a matrix, in place.

    Args:
        tensor: to fill.
        a: slope below zero of leaky_relu.
        mode: "fan_in" or "fan_out".
        nonlinearity: as in torch.
    """
    gain = nn.init.calculate_gain(nonlinearity, a)  # type: ignore[arg-type]
    return normal_by_fan_(_calculate_correct_fan(tensor, mode), tensor, gain)
