"""pointops.subtraction."""

from __future__ import annotations

import torch


def subtraction(input1: torch.Tensor, input2: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(n, c), (n, c), (n, ns) -> (n, ns, c): input1 of the row minus input2 of its neighbours."""
    return input1[:, None] - input2[idx.long()]
