"""pointops.grouping."""

from __future__ import annotations

import torch

from ...pointops.pointcept import grouping

__all__ = ["grouping", "grouping2"]


def grouping2(feat: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(n, c) at (m, ns) -> (m, ns, c), every index a row."""
    return feat[idx.long()]
