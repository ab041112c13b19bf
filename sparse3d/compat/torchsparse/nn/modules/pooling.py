"""Global pools and crops."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..functional.pooling import global_avg_pool, global_max_pool, spcrop

__all__ = ["GlobalAvgPool", "GlobalMaxPool", "SparseCrop"]


class GlobalAvgPool(nn.Module):
    """Mean of each sample, [B, C]."""

    def forward(self, input: Any) -> torch.Tensor:
        return global_avg_pool(input)


class GlobalMaxPool(nn.Module):
    """Maximum of each sample, [B, C]."""

    def forward(self, input: Any) -> torch.Tensor:
        return global_max_pool(input)


class SparseCrop(nn.Module):
    """The rows with `coords_min <= (x, y, z) < coords_max`.

    Args:
        coords_min: 3 numbers, or None for no bound.
        coords_max: likewise.
        parity: see `functional.spcrop`.
    """

    coords_min: torch.Tensor | None
    coords_max: torch.Tensor | None

    def __init__(
        self, coords_min: Any = None, coords_max: Any = None, *, parity: bool = False
    ) -> None:
        super().__init__()
        self.parity = parity
        for name, bound in (("coords_min", coords_min), ("coords_max", coords_max)):
            value = None if bound is None else torch.tensor([list(bound)], dtype=torch.int32)
            self.register_buffer(name, value)

    def forward(self, input: Any) -> Any:
        """Crop."""
        return spcrop(input, self.coords_min, self.coords_max, parity=self.parity)
