"""pointops.subtraction."""

from __future__ import annotations

import torch

from ..._check import same_device, tensor
from ...pointops import _inputs


def subtraction(input1: torch.Tensor, input2: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(n, c), (n, c), (n, ns) -> (n, ns, c): input1 of the row minus input2 of its neighbours."""
    tensor("input2", input2)
    same_device(input1=input1, input2=input2, idx=idx)
    rows = _inputs.index("idx", idx, 2, input2.shape[0], pad=False)
    return input1[:, None] - input2[rows.long()]
