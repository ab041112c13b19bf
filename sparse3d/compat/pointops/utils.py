"""pointops.utils: queries with their groups, offsets and batch vectors."""

from __future__ import annotations

import torch

from ...pointops.pointcept import (
    batch2offset,
    dilated_knn_query,
    grouping,
    knn_query,
    knn_query_and_group,
    offset2batch,
)
from .query import ball_query

__all__ = [
    "ball_query_and_group",
    "batch2offset",
    "knn_query_and_group",
    "offset2batch",
    "query_and_group",
    "queryandgroup",
]


def ball_query_and_group(
    feat: torch.Tensor,
    xyz: torch.Tensor,
    offset: torch.Tensor | None = None,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
    idx: torch.Tensor | None = None,
    max_radio: float | None = None,
    min_radio: float = 0,
    nsample: int | None = None,
    with_xyz: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Groups of the points of a shell and their indices."""
    if idx is None:
        if nsample is None or offset is None or max_radio is None:
            raise ValueError("nsample, offset and max_radio must be given without idx, got None")
        idx, _ = ball_query(nsample, max_radio, min_radio, xyz, offset, new_xyz, new_offset)
    return grouping(idx, feat, xyz, new_xyz, with_xyz), idx


def query_and_group(
    nsample: int,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None,
    feat: torch.Tensor,
    idx: torch.Tensor | None,
    offset: torch.Tensor,
    new_offset: torch.Tensor,
    dilation: int = 0,
    with_feat: bool = True,
    with_xyz: bool = True,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Groups of (dilated) nearest points and their indices; indices alone without `with_feat`."""
    centres = xyz if new_xyz is None else new_xyz
    if idx is None:
        idx = dilated_knn_query(nsample, dilation, xyz, offset, centres, new_offset)
    if not with_feat:
        return idx
    return grouping(idx, feat, xyz, centres, with_xyz), idx


def queryandgroup(
    nsample: int,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None,
    feat: torch.Tensor,
    idx: torch.Tensor | None,
    offset: torch.Tensor,
    new_offset: torch.Tensor,
    use_xyz: bool = True,
) -> torch.Tensor:
    """`query_and_group` of the first generation: groups only."""
    centres = xyz if new_xyz is None else new_xyz
    if idx is None:
        idx, _ = knn_query(nsample, xyz, offset, centres, new_offset)
    return grouping(idx, feat, xyz, centres, use_xyz)
