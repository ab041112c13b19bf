"""Base of networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import nn

__all__ = ["MinkowskiNetwork"]


class MinkowskiNetwork(nn.Module, ABC):
    """A network over D axes.

    Args:
        D: spatial axes.
    """

    def __init__(self, D: int) -> None:
        super().__init__()
        self.D = D

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Run the network."""

    def init(self, x: Any) -> None:
        """Run once, to build coordinate maps."""
        self.forward(x)
