"""Activations."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..utils.apply import fapply

__all__ = ["LeakyReLU", "ReLU", "SiLU"]


class ReLU(nn.ReLU):
    """ReLU of the features."""

    def forward(self, input: Any) -> Any:
        return fapply(input, super().forward)


class LeakyReLU(nn.LeakyReLU):
    """Leaky ReLU of the features."""

    def forward(self, input: Any) -> Any:
        return fapply(input, super().forward)


class SiLU(nn.SiLU):
    """SiLU of the features."""

    def forward(self, input: Any) -> Any:
        return fapply(input, super().forward)
