"""pointops.grouping."""

from __future__ import annotations

import torch

from ..._check import same_device, tensor
from ...pointops import _inputs
from ...pointops.pointcept import grouping as _grouping

__all__ = ["grouping", "grouping2"]


def grouping(
    idx: torch.Tensor,
    feat: torch.Tensor,
    xyz: torch.Tensor | None = None,
    new_xyz: torch.Tensor | None = None,
    with_xyz: bool = False,
) -> torch.Tensor:
    """(m, ns) of (n, c) -> (m, ns, c), or (m, ns, 3 + c) with offsets; -1 gives zeros.

    The first generation's `grouping(feat, idx)` is told from it by the missing xyz.
    """
    if xyz is None:
        return grouping2(idx, feat)
    return _grouping(idx, feat, xyz, new_xyz, with_xyz)


def grouping2(feat: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(n, c) at (m, ns) -> (m, ns, c), every index a row."""
    tensor("feat", feat)
    same_device(feat=feat, idx=idx)
    return feat[_inputs.index("idx", idx, 2, feat.shape[0], pad=False).long()]
