"""Arithmetic of neighbourhoods: what point transformers do with the rows that a query found.

Meaning and formula, n rows, s neighbours, g groups, m pairs (target, refer):
`subtraction[i, j] = input1[i] - input2[idx[i, j]]`;
`aggregation[i, c] = sum over j of (input[idx[i, j], c] + position[i, j, c]) *
weight[i, j, c mod w]`;
`attention_relation_step[p, g] = sum over c of query[target[p], g, c] * key[refer[p], g, c] *
weight[c]`;
`attention_fusion_step[i, g, c] = sum over pairs p of target i of weight[p, g] *
value[refer[p], g, c]`;
`relative_relation_step[p, g] = sum over c and axes a of query[index[p], g, c] *
table[rel_idx[p, a], g, c, a]`;
`relative_bias`: that of queries and that of keys, added;
`relative_fusion_step`: as `attention_fusion_step` of `value[refer[p], g, c] + sum over axes a of
table[rel_idx[p, a], g, c, a]`.
compact: the result has rows up to the largest target only.
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
from ._clouds import checked_pointer
from .segments import run_ids


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
    weight: torch.Tensor | None,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
) -> torch.Tensor:
    """Weighted dot products of pairs.

    Args:
        query: (n, g, c).
        key: (k, g, c).
        weight: (c,), ones where None.
        index_target: (m,) rows of `query`.
        index_refer: (m,) rows of `key`.

    Returns:
        (m, g).
    """
    tensor("query", query, 3)
    tensor("key", key, 3)
    same_device(query=query, key=key, index_target=index_target, index_refer=index_refer)
    target, refer = _pairs(index_target, query.shape[0], index_refer, key.shape[0])
    product = _taken(query, target) * _taken(key, refer)
    return (product if weight is None else product * weight).sum(-1)


def attention_fusion_step(
    weight: torch.Tensor,
    value: torch.Tensor,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
    *,
    compact: bool = False,
) -> torch.Tensor:
    """Weighted values of pairs, summed at the target.

    Args:
        weight: (m, g).
        value: (n, g, c).
        index_target: (m,) rows of the result.
        index_refer: (m,) rows of `value`.
        compact: see above.

    Returns:
        (n, g, c).
    """
    tensor("value", value, 3)
    same_device(weight=weight, value=value, index_target=index_target, index_refer=index_refer)
    target, refer = _pairs(index_target, value.shape[0], index_refer, value.shape[0])
    return _fuse(weight, _taken(value, refer), target, value.shape[0], compact)


def _fuse(
    weight: torch.Tensor, values: torch.Tensor, target: torch.Tensor, rows: int, compact: bool
) -> torch.Tensor:
    """Weighted values [m, g, c] summed at their targets."""
    pairs, groups, channels = values.shape
    if weight.shape != (pairs, groups):
        fail("weight", f"of shape {[pairs, groups]}", list(weight.shape))
    if compact:
        rows = int(target.max()) + 1 if pairs else 0
    flat = (weight[..., None] * values).reshape(pairs, groups * channels)
    total: torch.Tensor = segment_sum(flat, target, rows)
    return total.view(rows, groups, channels)


def _relative(table: torch.Tensor, rel_idx: torch.Tensor, axis: int) -> torch.Tensor:
    """Rows [m, g, c] of a table (l, g, c, d) for one axis of relative positions (m, d)."""
    return _taken(table[..., axis], rel_idx[:, axis].long())


def _check_table(table: torch.Tensor, rel_idx: torch.Tensor, like: torch.Tensor) -> None:
    tensor("table", table, 4)
    _inputs.index("rel_idx", rel_idx, 2, table.shape[0], pad=False)
    same_device(table=table, rel_idx=rel_idx, rows=like)
    if table.shape[1:3] != like.shape[1:] or table.shape[3] != rel_idx.shape[1]:
        wanted = f"of shape (l, {like.shape[1]}, {like.shape[2]}, {rel_idx.shape[1]})"
        fail("table", wanted, list(table.shape))


def relative_relation_step(
    query: torch.Tensor, table: torch.Tensor, index: torch.Tensor, rel_idx: torch.Tensor
) -> torch.Tensor:
    """Dot products of rows with the table entries of their relative positions.

    Args:
        query: (n, g, c).
        table: (l, g, c, d), one entry a quantised position and axis.
        index: (m,) rows of `query`.
        rel_idx: (m, d) entries of `table`, one an axis.

    Returns:
        (m, g).
    """
    _check_table(table, rel_idx, tensor("query", query, 3))
    rows = _inputs.index("index", index, 1, query.shape[0], pad=False).long()
    if rows.shape[0] != rel_idx.shape[0]:
        fail("rel_idx", f"of {rows.shape[0]} rows as index has", rel_idx.shape[0])
    taken = _taken(query, rows)
    parts = [(taken * _relative(table, rel_idx, axis)).sum(-1) for axis in range(table.shape[3])]
    return torch.stack(parts).sum(0)


def relative_bias(
    query: torch.Tensor,
    key: torch.Tensor,
    table_query: torch.Tensor,
    table_key: torch.Tensor,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
    rel_idx: torch.Tensor,
) -> torch.Tensor:
    """`relative_relation_step` of the targets' queries plus that of the referred keys.

    Args:
        query: (n, g, c).
        key: (k, g, c).
        table_query: (l, g, c, d).
        table_key: as `table_query`.
        index_target: (m,) rows of `query`.
        index_refer: (m,) rows of `key`.
        rel_idx: (m, d) entries of both tables.

    Returns:
        (m, g).
    """
    queries = relative_relation_step(query, table_query, index_target, rel_idx)
    return queries + relative_relation_step(key, table_key, index_refer, rel_idx)


def relative_fusion_step(
    weight: torch.Tensor,
    value: torch.Tensor,
    table: torch.Tensor,
    index_target: torch.Tensor,
    index_refer: torch.Tensor,
    rel_idx: torch.Tensor,
    *,
    compact: bool = False,
) -> torch.Tensor:
    """`attention_fusion_step` of values plus the table entries of their relative positions.

    Args:
        weight: (m, g).
        value: (n, g, c).
        table: (l, g, c, d).
        index_target: (m,) rows of the result.
        index_refer: (m,) rows of `value`.
        rel_idx: (m, d) entries of `table`.
        compact: see above.

    Returns:
        (n, g, c).
    """
    _check_table(table, rel_idx, tensor("value", value, 3))
    same_device(weight=weight, value=value, index_target=index_target, index_refer=index_refer)
    target, refer = _pairs(index_target, value.shape[0], index_refer, value.shape[0])
    if target.shape[0] != rel_idx.shape[0]:
        fail("rel_idx", f"of {target.shape[0]} rows as index_target has", rel_idx.shape[0])
    values = _taken(value, refer)
    for axis in range(table.shape[3]):
        values = values + _relative(table, rel_idx, axis)
    return _fuse(weight, values, target, value.shape[0], compact)


def targets(offsets: torch.Tensor, pairs: int) -> torch.Tensor:
    """Target of each pair where pairs lie target by target.

    Args:
        offsets: (n + 1,) int64 or int32 bounds of each target's pairs.
        pairs: how many there are.

    Returns:
        (pairs,) int64.
    """
    tensor("offsets", offsets, 1)
    if _inputs.values_known(offsets):
        checked_pointer("offsets", offsets, pairs, offsets.device, of="pairs", least=0)
    return run_ids(offsets.long(), pairs)
