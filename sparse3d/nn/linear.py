"""`torch.nn.Linear` for rows of features."""

from __future__ import annotations

import torch

from ..ops.linear import linear

__all__ = ["Linear"]


class Linear(torch.nn.Linear):
    """`torch.nn.Linear`, by our own kernel on Apple GPUs: PyTorch's product there is wrong where it
    sums over 32,767 rows and more, as the gradient to the weight does."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return linear(input, self.weight, self.bias)
