"""pointops.grouping."""

from __future__ import annotations

import torch

from ..._check import same_device, tensor
from ...pointops import _inputs
from ...pointops.pointcept import grouping

__all__ = ["grouping", "grouping2"]


def grouping2(feat: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(n, c) at (m, ns) -> (m, ns, c), every index a row."""
    tensor("feat", feat)
    same_device(feat=feat, idx=idx)
    return feat[_inputs.index("idx", idx, 2, feat.shape[0], pad=False).long()]
