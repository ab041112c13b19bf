"""pointops.aggregation."""

from __future__ import annotations

import torch


def aggregation(
    input: torch.Tensor, position: torch.Tensor, weight: torch.Tensor, idx: torch.Tensor
) -> torch.Tensor:
    """(n, c), (n, ns, c), (n, ns, w), (n, ns) -> (n, c): weighted sum of neighbours plus position.

    Channel j takes weight j mod w.
    """
    values = input[idx.long()] + position
    n, samples, channels = values.shape
    shares = weight.shape[-1]
    spread = values.view(n, samples, channels // shares, shares) * weight[:, :, None]
    return spread.sum(1).reshape(n, channels)
