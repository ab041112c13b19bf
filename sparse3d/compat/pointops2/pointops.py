"""pointops2.pointops: neighbours, and attention over pairs with relative positions."""

from __future__ import annotations

import torch

from ...pointops import attention
from ...pointops.pointcept import divided_ends
from ...pointops.pointcept import interpolation as _interpolation
from ..pointops import (
    aggregation,
    furthestsampling,
    grouping2,
    interpolation,
    interpolation2,
    knnquery,
    subtraction,
)
from ..pointops import queryandgroup as _queryandgroup

__all__ = [
    "Divide2Patch",
    "aggregation",
    "attention_step1",
    "attention_step1_v2",
    "attention_step2",
    "attention_step2_v2",
    "attention_step2_with_rel_pos_value",
    "attention_step2_with_rel_pos_value_v2",
    "dot_prod_with_idx",
    "dot_prod_with_idx_v2",
    "dot_prod_with_idx_v3",
    "furthestsampling",
    "grouping",
    "interpolation",
    "interpolation2",
    "interpolation_v2",
    "knnquery",
    "queryandgroup",
    "subtraction",
]

grouping = grouping2


def queryandgroup(
    nsample: int,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None,
    feat: torch.Tensor,
    idx: torch.Tensor | None,
    offset: torch.Tensor,
    new_offset: torch.Tensor,
    use_xyz: bool = True,
    return_indx: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Groups of the nearest points, and their indices where asked for."""
    if idx is None:
        idx, _ = knnquery(nsample, xyz, new_xyz, offset, new_offset)
    groups = _queryandgroup(nsample, xyz, new_xyz, feat, idx, offset, new_offset, use_xyz)
    return (groups, idx) if return_indx else groups


def interpolation_v2(
    xyz: torch.Tensor,
    new_xyz: torch.Tensor,
    feat: torch.Tensor,
    offset: torch.Tensor,
    new_offset: torch.Tensor,
    k: int = 3,
) -> torch.Tensor:
    """`interpolation` whose weights have gradients to the positions."""
    return _interpolation(xyz, new_xyz, feat, offset, new_offset, k, soft=True)


def Divide2Patch(
    nsample: int,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    return_offset: bool = False,
    anchor_scale: int | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Neighbours of farthest points, one in `anchor_scale` (`nsample`) of each cloud."""
    ends = divided_ends(offset, anchor_scale or nsample)
    centres = xyz[furthestsampling(xyz, offset, ends).long()]
    idx, _ = knnquery(nsample, xyz, centres, offset, ends)
    return (idx, ends) if return_offset else idx


def attention_step1(
    q: torch.Tensor, k: torch.Tensor, index0: torch.Tensor, index1: torch.Tensor
) -> torch.Tensor:
    """(N, h, c), (N, h, c), (M,), (M,) -> (M, h): dot products of pairs."""
    return attention.attention_relation_step(q, k, None, index0, index1)


def attention_step1_v2(
    q: torch.Tensor,
    k: torch.Tensor,
    index1: torch.Tensor,
    index0_offsets: torch.Tensor,
    n_max: int | torch.Tensor,
) -> torch.Tensor:
    """`attention_step1` of pairs that lie query by query."""
    return attention_step1(q, k, attention.targets(index0_offsets, len(index1)), index1)


def attention_step2(
    attn: torch.Tensor, v: torch.Tensor, index0: torch.Tensor, index1: torch.Tensor
) -> torch.Tensor:
    """(M, h), (N, h, c), (M,), (M,) -> (largest index0 + 1, h, c): weighted values of pairs."""
    return attention.attention_fusion_step(attn, v, index0, index1, compact=True)


attention_step2_v2 = attention_step2


def dot_prod_with_idx(
    q: torch.Tensor, index: torch.Tensor, table: torch.Tensor, rel_idx: torch.Tensor
) -> torch.Tensor:
    """(N, h, c), (M,), (L, h, c, 3), (M, 3) -> (M, h): rows times entries of the table."""
    return attention.relative_relation_step(q, table, index, rel_idx)


def dot_prod_with_idx_v2(
    q: torch.Tensor,
    index_q: torch.Tensor,
    k: torch.Tensor,
    index_k: torch.Tensor,
    table_q: torch.Tensor,
    table_k: torch.Tensor,
    rel_idx: torch.Tensor,
) -> torch.Tensor:
    """`dot_prod_with_idx` of queries and of keys, added."""
    return attention.relative_bias(q, k, table_q, table_k, index_q, index_k, rel_idx)


def dot_prod_with_idx_v3(
    q: torch.Tensor,
    index_q_offsets: torch.Tensor,
    n_max: int | torch.Tensor,
    k: torch.Tensor,
    index_k: torch.Tensor,
    table_q: torch.Tensor,
    table_k: torch.Tensor,
    rel_idx: torch.Tensor,
) -> torch.Tensor:
    """`dot_prod_with_idx_v2` of pairs that lie query by query."""
    index_q = attention.targets(index_q_offsets, len(index_k))
    return dot_prod_with_idx_v2(q, index_q, k, index_k, table_q, table_k, rel_idx)


def attention_step2_with_rel_pos_value(
    attn: torch.Tensor,
    v: torch.Tensor,
    index0: torch.Tensor,
    index1: torch.Tensor,
    table: torch.Tensor,
    rel_idx: torch.Tensor,
) -> torch.Tensor:
    """`attention_step2` of values plus entries of the table."""
    return attention.relative_fusion_step(attn, v, table, index0, index1, rel_idx, compact=True)


def attention_step2_with_rel_pos_value_v2(
    attn: torch.Tensor,
    v: torch.Tensor,
    index0_offsets: torch.Tensor,
    n_max: int | torch.Tensor,
    index1: torch.Tensor,
    table: torch.Tensor,
    rel_idx: torch.Tensor,
) -> torch.Tensor:
    """`attention_step2_with_rel_pos_value` of pairs that lie query by query, (N, h, c)."""
    index0 = attention.targets(index0_offsets, len(index1))
    return attention.relative_fusion_step(attn, v, table, index0, index1, rel_idx)
