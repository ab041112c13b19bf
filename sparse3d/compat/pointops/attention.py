"""pointops.attention: the two steps of attention over pairs (target, refer)."""

from __future__ import annotations

import torch

from ...ops.segment import segment_sum


def attention_relation_step(
    query: torch.Tensor,
    key: torch.Tensor,
    weight: torch.Tensor,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
) -> torch.Tensor:
    """(n, g, c), (n, g, c), (c,), (m,), (m,) -> (m, g): weighted dot products of pairs."""
    return (query[index_target.long()] * key[index_refer.long()] * weight).sum(-1)


def attention_fusion_step(
    weight: torch.Tensor,
    value: torch.Tensor,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
) -> torch.Tensor:
    """(m, g), (n, g, c), (m,), (m,) -> (n, g, c): weighted values of pairs summed at the target."""
    n, groups, channels = value.shape
    terms = weight[..., None] * value[index_refer.long()]
    flat = terms.reshape(terms.shape[0], groups * channels)
    total: torch.Tensor = segment_sum(flat, index_target.long(), n)
    return total.view(n, groups, channels)
