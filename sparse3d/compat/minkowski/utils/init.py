"""Initialisation."""

from __future__ import annotations

import math

import torch
from torch import nn

from .... import _check

__all__ = ["kaiming_normal_"]


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
    if tensor.ndim < 2 or 0 in tensor.shape:
        _check.fail("tensor", "a kernel [K, C_in, C_out] or a matrix", list(tensor.shape))
    if tensor.ndim == 2:
        fans = {"fan_in": tensor.shape[1], "fan_out": tensor.shape[0]}
    else:
        taps = tensor.shape[0]
        fans = {"fan_in": taps * tensor.shape[1], "fan_out": taps * tensor.shape[2]}
    if mode not in fans:
        _check.fail("mode", f"one of {sorted(fans)}", repr(mode))
    gain = nn.init.calculate_gain(nonlinearity, a)  # type: ignore[arg-type]
    with torch.no_grad():
        return tensor.normal_(0, gain / math.sqrt(fans[mode]))
