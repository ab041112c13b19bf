"""Residual encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from .modules.blocks import SparseConvBlock, SparseResBlock

__all__ = ["SparseResNet", "SparseResNet21D"]


class SparseResNet(nn.ModuleList):
    """Stages of one strided block and residual blocks; gives every stage's output.

    Args:
        blocks: (number, channels, kernel size, stride) of each stage.
        in_channels: of the input.
        width_multiplier: of all channels.
    """

    def __init__(
        self,
        blocks: Sequence[tuple[int, int, Any, Any]],
        *,
        in_channels: int = 4,
        width_multiplier: float = 1.0,
    ) -> None:
        super().__init__()
        self.blocks = blocks
        self.in_channels = in_channels
        self.width_multiplier = width_multiplier
        width = in_channels
        for number, channels, kernel_size, stride in blocks:
            out = int(int(channels) * width_multiplier)
            head = SparseConvBlock(width, out, kernel_size, stride=stride)
            rest = [SparseResBlock(out, out, kernel_size) for _ in range(int(number) - 1)]
            self.append(nn.Sequential(head, *rest))
            width = out

    def forward(self, x: Any) -> list[Any]:
        """Output of each stage."""
        outputs = []
        for stage in self:
            x = stage(x)
            outputs.append(x)
        return outputs


class SparseResNet21D(SparseResNet):
    """The peer's detection backbone."""

    def __init__(self, **kwargs: Any) -> None:
        stages = [
            (3, 16, 3, 1),
            (3, 32, 3, 2),
            (3, 64, 3, 2),
            (3, 128, 3, 2),
            (1, 128, (1, 3, 1), (1, 2, 1)),
        ]
        super().__init__(stages, **kwargs)
