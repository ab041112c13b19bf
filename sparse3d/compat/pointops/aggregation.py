"""pointops.aggregation."""

from __future__ import annotations

import torch

from ..._check import same_device, tensor
from ...pointops import _inputs


def aggregation(
    input: torch.Tensor, position: torch.Tensor, weight: torch.Tensor, idx: torch.Tensor
) -> torch.Tensor:
    """(n, c), (n, ns, c), (n, ns, w), (n, ns) -> (n, c): weighted sum of neighbours plus position.

    Channel j takes weight j mod w.
    """
    tensor("input", input)
    same_device(input=input, position=position, weight=weight, idx=idx)
    rows = _inputs.index("idx", idx, 2, input.shape[0], pad=False)
    values = input[rows.long()] + position
    n, samples, channels = values.shape
    shares = weight.shape[-1]
    spread = values.view(n, samples, channels // shares, shares) * weight[:, :, None]
    return spread.sum(1).reshape(n, channels)
