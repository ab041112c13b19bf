"""Initial values of weights by their fan: channels times taps."""

from __future__ import annotations

import math

import torch
from torch import nn

from .. import _check

__all__ = ["normal_by_fan_", "uniform_by_fan_"]


def uniform_by_fan_(fan: int, *parameters: torch.Tensor | None) -> None:
    """Fill parameters in turn, uniform in +-1/sqrt(fan); None is passed over.

    Raises:
        ValueError: if `fan` is not positive.
    """
    bound = 1 / math.sqrt(_check.positive("fan", fan))
    for parameter in parameters:
        if parameter is not None:
            nn.init.uniform_(parameter, -bound, bound)


def normal_by_fan_(fan: int, parameter: torch.Tensor, gain: float = 1.0) -> torch.Tensor:
    """Fill a parameter, normal with mean 0 and deviation gain/sqrt(fan); returns it.

    Raises:
        ValueError: if `fan` is not positive.
    """
    return nn.init.normal_(parameter, 0, gain / math.sqrt(_check.positive("fan", fan)))
