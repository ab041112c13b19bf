"""pointops.attention: the two steps of attention over pairs (target, refer)."""

from __future__ import annotations

import torch

from ..._check import fail, same_device
from ...ops.segment import segment_sum
from ...pointops import _inputs


def _pairs(
    index_target: torch.Tensor, targets: int, index_refer: torch.Tensor, refers: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Checked int64 rows of each pair."""
    _inputs.index("index_target", index_target, 1, targets, pad=False)
    _inputs.index("index_refer", index_refer, 1, refers, pad=False)
    if index_target.shape != index_refer.shape:
        fail("index_refer", f"of {len(index_target)} entries as index_target", len(index_refer))
    return index_target.long(), index_refer.long()


def attention_relation_step(
    query: torch.Tensor,
    key: torch.Tensor,
    weight: torch.Tensor,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
) -> torch.Tensor:
    """(n, g, c), (n, g, c), (c,), (m,), (m,) -> (m, g): weighted dot products of pairs."""
    same_device(query=query, key=key, index_target=index_target, index_refer=index_refer)
    target, refer = _pairs(index_target, query.shape[0], index_refer, key.shape[0])
    return (query[target] * key[refer] * weight).sum(-1)


def attention_fusion_step(
    weight: torch.Tensor,
    value: torch.Tensor,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
) -> torch.Tensor:
    """(m, g), (n, g, c), (m,), (m,) -> (n, g, c): weighted values of pairs summed at the target."""
    same_device(weight=weight, value=value, index_target=index_target, index_refer=index_refer)
    n, groups, channels = value.shape
    target, refer = _pairs(index_target, n, index_refer, n)
    if weight.shape != (len(target), groups):
        fail("weight", f"of shape {[len(target), groups]}", list(weight.shape))
    terms = weight[..., None] * value[refer]
    flat = terms.reshape(terms.shape[0], groups * channels)
    total: torch.Tensor = segment_sum(flat, target, n)
    return total.view(n, groups, channels)
