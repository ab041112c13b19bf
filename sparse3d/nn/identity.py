"""spconv's `Identity`."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["Identity"]


class Identity(nn.Module):
    """Gives back what it takes."""

    def forward(self, input: Any) -> Any:
        return input

    def input_spatial_size(self, out_size: Any) -> Any:
        return out_size
