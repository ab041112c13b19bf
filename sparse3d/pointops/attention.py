"""Arithmetic of neighbourhoods: what point transformers do with the rows that a query found.

Meaning and formula, n rows, s neighbours, g groups, m pairs (target, refer):
`subtraction[i, j] = input1[i] - input2[idx[i, j]]`;
`aggregation[i, c] = sum over j of (input[idx[i, j], c] + position[i, j, c]) *
weight[i, j, c mod w]`;
`attention_relation_step[p, g] = sum over c of query[target[p], g, c] * key[refer[p], g, c] *
weight[c]`;
`attention_fusion_step[i, g, c] = sum over pairs p of target i of weight[p, g] *
value[refer[p], g, c]`.
Shapes: as the functions say; indices int64 or int32, every one a row (no padding).
Order and accumulation: sums over neighbours and channels are torch's; those over pairs ascend, as
`scatter_sum`.
Gradient: to everything that floats, second derivatives too; gradients of gathered rows are segment
sums. Determinism: same bytes on every run of a device.
Errors: indices outside the rows, pairs or weights that do not match, tensors of several devices.

Example:
    >>> import torch
    >>> from sparse3d.pointops import attention
    >>> rows = torch.tensor([[1.0, 2.0], [5.0, 5.0]])
    >>> attention.subtraction(rows, rows, torch.tensor([[1], [0]])).tolist()
    [[[-4.0, -3.0]], [[4.0, 3.0]]]
"""

from __future__ import annotations

import torch

from sparse3d._check import fail, same_device, tensor
from sparse3d.ops.segment import segment_sum, take_rows

from . import _inputs


def _taken(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return take_rows(values, rows) if values.is_floating_point() else values[rows]


def subtraction(input1: torch.Tensor, input2: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """Each row minus its neighbours.

    Args:
        input1: (n, c).
        input2: (m, c).
        idx: (n, s) rows of `input2`.

    Returns:
        (n, s, c).
    """
    tensor("input1", input1, 2)
    tensor("input2", input2, 2)
    same_device(input1=input1, input2=input2, idx=idx)
    rows = _inputs.index("idx", idx, 2, input2.shape[0], pad=False)
    return input1[:, None] - _taken(input2, rows.long())


def aggregation(
    input: torch.Tensor, position: torch.Tensor, weight: torch.Tensor, idx: torch.Tensor
) -> torch.Tensor:
    """Weighted sum of neighbours plus position.

    Args:
        input: (n, c).
        position: (m, s, c).
        weight: (m, s, w), w a divisor of c: channel j takes weight j mod w.
        idx: (m, s) rows of `input`.

    Returns:
        (m, c).
    """
    tensor("input", input, 2)
    tensor("position", position, 3)
    tensor("weight", weight, 3)
    same_device(input=input, position=position, weight=weight, idx=idx)
    rows = _inputs.index("idx", idx, 2, input.shape[0], pad=False)
    places, samples, channels = position.shape
    shares = weight.shape[-1]
    if shares < 1 or channels % shares or weight.shape[:2] != position.shape[:2]:
        wanted = f"of shape ({places}, {samples}, a divisor of {channels})"
        fail("weight", wanted, list(weight.shape))
    if rows.shape != position.shape[:2] or input.shape[1] != channels:
        fail("position", f"of shape {[*rows.shape, input.shape[1]]}", list(position.shape))
    values = _taken(input, rows.long()) + position
    spread = values.view(places, samples, channels // shares, shares) * weight[:, :, None]
    return spread.sum(1).reshape(places, channels)


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
    """Weighted dot products of pairs.

    Args:
        query: (n, g, c).
        key: (k, g, c).
        weight: (c,).
        index_target: (m,) rows of `query`.
        index_refer: (m,) rows of `key`.

    Returns:
        (m, g).
    """
    tensor("query", query, 3)
    tensor("key", key, 3)
    same_device(query=query, key=key, index_target=index_target, index_refer=index_refer)
    target, refer = _pairs(index_target, query.shape[0], index_refer, key.shape[0])
    return (_taken(query, target) * _taken(key, refer) * weight).sum(-1)


def attention_fusion_step(
    weight: torch.Tensor,
    value: torch.Tensor,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
) -> torch.Tensor:
    """Weighted values of pairs, summed at the target.

    Args:
        weight: (m, g).
        value: (n, g, c).
        index_target: (m,) rows of the result.
        index_refer: (m,) rows of `value`.

    Returns:
        (n, g, c).
    """
    tensor("value", value, 3)
    same_device(weight=weight, value=value, index_target=index_target, index_refer=index_refer)
    n, groups, channels = value.shape
    target, refer = _pairs(index_target, n, index_refer, n)
    if weight.shape != (len(target), groups):
        fail("weight", f"of shape {[len(target), groups]}", list(weight.shape))
    terms = weight[..., None] * _taken(value, refer)
    flat = terms.reshape(terms.shape[0], groups * channels)
    total: torch.Tensor = segment_sum(flat, target, n)
    return total.view(n, groups, channels)
