"""pointops.grouping."""

from __future__ import annotations

import torch


def rows_at(values: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """values[idx], zeros where the index is -1."""
    if values.shape[0] == 0:
        return values.new_zeros((*idx.shape, *values.shape[1:]))
    index = idx.long()
    valid = (index >= 0).reshape(*idx.shape, *[1] * (values.ndim - 1))
    return torch.where(valid, values[index.clamp_min(0)], 0)


def grouping(
    idx: torch.Tensor,
    feat: torch.Tensor,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    with_xyz: bool = False,
) -> torch.Tensor:
    """(m, ns) of (n, c) -> (m, ns, c), or (m, ns, 3 + c) with offsets; -1 gives zeros."""
    grouped = rows_at(feat, idx)
    if not with_xyz:
        return grouped
    centres = xyz if new_xyz is None else new_xyz
    apart = torch.where((idx >= 0)[..., None], rows_at(xyz, idx) - centres[:, None], 0)
    return torch.cat([apart, grouped], -1)


def grouping2(feat: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """(n, c) at (m, ns) -> (m, ns, c), every index a row."""
    return feat[idx.long()]
