"""Segment reductions: rows that share an id become one row.

    sum[s] = sum of values[i] with ids[i] == s;  mean = sum / count;  max = maximum, per channel

*Shapes.* values [N, C], ids int64 [N] in any order, out [S, C]. *Dtypes.* float32, float16,
bfloat16, float64. *Order and ties.* Rows ascend within a segment; of equal maxima the lowest row
wins; NaN wins over any number. *Empty.* A segment without rows is 0 (its arg is -1).
*Accumulation.* float32 (float64 for float64): chunks of 512 rows of a segment, then the chunk sums
in order. *Gradient.* To values. *Determinism.* Same bytes whatever the thread count.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch

from .. import _check
from .._registry import Op
from ._conv_reference import CHUNK, _accumulator
from .order import count_ids, order_keys, running_sum

__all__ = [
    "agreed_labels",
    "count_segments",
    "first_of_segments",
    "means_by_counts",
    "reduce_segments",
    "sparse_product",
    "spread_segments",
    "standardize_segments",
    "sum_by_channel",
]

REDUCTIONS = ("sum", "mean", "max")


def _sum_reference(values: torch.Tensor, ids: torch.Tensor, num: int) -> torch.Tensor:
    """Sort rows by segment, sum chunks of 512, then the chunks of each segment."""
    rows = values.to(_accumulator(values.dtype))
    if len(rows) == 0 or num == 0 or rows.shape[1] == 0:
        return values.new_zeros((num, values.shape[1]))
    ordered = rows.index_select(0, torch.argsort(ids, stable=True))
    counts = torch.bincount(ids, minlength=num)
    chunks = (counts + CHUNK - 1) // CHUNK
    owner = torch.repeat_interleave(torch.arange(num, device=ids.device), chunks)
    place = torch.arange(len(owner), device=ids.device) - (chunks.cumsum(0) - chunks)[owner]
    lengths = (counts[owner] - place * CHUNK).clamp(max=CHUNK)
    partial = torch.segment_reduce(ordered, "sum", lengths=lengths, unsafe=True)
    return torch.segment_reduce(partial, "sum", lengths=chunks, unsafe=True).to(values.dtype)


def _max_reference(
    values: torch.Tensor, ids: torch.Tensor, num: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum per segment, then the lowest row that holds it."""
    channels = values.shape[1]
    index = ids[:, None].expand(-1, channels)
    best = values.new_full((num, channels), float("-inf"))
    best = best.scatter_reduce(0, index, values, "amax")
    mine = best[ids]
    holds = (values == mine) | (values.isnan() & mine.isnan())
    row = torch.arange(len(ids), device=ids.device)[:, None].expand(-1, channels)
    arg = torch.full((num, channels), len(ids), dtype=torch.int64, device=ids.device)
    arg = arg.scatter_reduce(0, index, torch.where(holds, row, len(ids)), "amin")
    empty = arg == len(ids)
    return best.masked_fill(empty, 0), arg.masked_fill(empty, -1)


segment_sum = Op(
    "segment_sum(Tensor values, Tensor ids, SymInt num) -> Tensor",
    reference=_sum_reference,
    fake=lambda values, ids, num: values.new_empty((num, values.shape[1])),
)
segment_max = Op(
    "segment_max(Tensor values, Tensor ids, SymInt num) -> (Tensor, Tensor)",
    reference=_max_reference,
    fake=lambda values, ids, num: (
        values.new_empty((num, values.shape[1])),
        values.new_empty((num, values.shape[1]), dtype=torch.int64),
    ),
)


def _sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[1])


def _sum_gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    (ids,) = ctx.saved_tensors
    return take_rows(grad, ids), None, None


def _max_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    arg = output[1]
    ctx.mark_non_differentiable(arg)
    ctx.save_for_backward(arg)
    ctx.rows = inputs[0].shape[0]


def _max_gradient(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
    (arg,) = ctx.saved_tensors
    # A row wins each channel of its segment at most once: writes never meet.
    out = grad.new_zeros((ctx.rows + 1, grad.shape[1]))
    target = torch.where(arg < 0, ctx.rows, arg)
    return out.scatter(0, target, grad)[: ctx.rows], None, None


segment_sum.gradient(_sum_gradient, _sum_setup)
segment_max.gradient(_max_gradient, _max_setup)


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = values.shape
        return values[ids]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        (ids,), (rows, *rest) = ctx.saved_tensors, ctx.shape
        flat = grad.reshape(ids.numel(), math.prod(rest)).contiguous()
        return segment_sum(flat, ids.reshape(-1), rows).reshape(rows, *rest), None


def take_rows(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """`values[ids]` for int64 ids of any shape, whose gradient is a segment sum: the same bytes
    every time, which torch's index does not promise on GPUs."""
    taken: torch.Tensor = _TakeRows.apply(values, ids)  # type: ignore[no-untyped-call]
    return taken


def reduce_segments(
    values: torch.Tensor, ids: torch.Tensor, num: int, reduce: str = "sum"
) -> torch.Tensor:
    """Reduce the rows of each segment to one.

    Args:
        values: [N, C].
        ids: int64 [N], each in [0, num); trusted, since a check would read the device back.
        num: number of segments.
        reduce: "sum", "mean" or "max".

    Returns:
        [num, C]; 0 for a segment without rows.

    Raises:
        ValueError: if rows, devices or the reduction do not fit.
        TypeError: if `values` is not floating or `ids` not int64.
    """
    _check.features("values", values)
    if _check.tensor("ids", ids, 1).dtype != torch.int64:
        _check.fail_type("ids", "int64", ids.dtype, "convert with .long()")
    _check.same_device(values=values, ids=ids)
    _check.same_rows("ids", ids.shape[0], "values", values.shape[0])
    if reduce not in REDUCTIONS:
        _check.fail("reduce", f"one of {REDUCTIONS}", repr(reduce))
    rows = values.contiguous()
    if reduce == "max":
        return cast(torch.Tensor, segment_max(rows, ids, num)[0])
    if reduce == "sum":
        return cast(torch.Tensor, segment_sum(rows, ids, num))
    wide = rows.to(_accumulator(rows.dtype))
    count = segment_sum(wide.new_ones((len(ids), 1)), ids, num)
    return cast(torch.Tensor, (segment_sum(wide, ids, num) / count.clamp(min=1)).to(values.dtype))


def means_by_counts(values: torch.Tensor, ids: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """The sum of each segment's rows over a count that the caller states.

    Args:
        values: [N, C]; half precision is summed and divided in float32.
        ids: int64 [N], each in [0, M), or -1 for a row that counts nowhere.
        counts: [M]; one below 1 counts as 1.

    Returns:
        [M, C], of the values' dtype; differentiable.

    Raises:
        ValueError: if rows do not fit.
    """
    _check.same_rows("ids", len(ids), "values", len(values))
    if bool((ids < 0).any()):
        inside = (ids >= 0).nonzero()[:, 0]
        values, ids = take_rows(values, inside), ids[inside]
    # Neither the sum nor the count of a crowded segment fits half precision.
    total = reduce_segments(values.to(_accumulator(values.dtype)), ids, len(counts))
    return (total / counts.clamp(min=1)[:, None].to(total.dtype)).to(values.dtype)


def sparse_product(
    rows: torch.Tensor, cols: torch.Tensor, values: torch.Tensor, num: int, dense: torch.Tensor
) -> torch.Tensor:
    """`A @ dense` for a matrix A of listed entries, `A[rows[i], cols[i]] += values[i]`.

    Args:
        rows: int64 [P], each in [0, num).
        cols: int64 [P], rows of `dense`; trusted.
        values: [P].
        num: rows of A.
        dense: [N, C].

    Returns:
        [num, C]; differentiable in `values` and `dense`, sums in fixed order.
    """
    gathered = spread_segments(dense, cols) * values.to(dense.dtype)[:, None]
    return reduce_segments(gathered, rows, num)


def sum_by_channel(values: torch.Tensor, ids: torch.Tensor, num: int) -> torch.Tensor:
    """Sum entries that share a row number and a channel: what a maximum's gradient is made of.

    Args:
        values: [M, C].
        ids: int64 [M, C], each in [0, num), or negative for an entry that counts nowhere.
        num: number of rows.

    Returns:
        [num, C].

    Raises:
        ValueError: if `ids` is of another shape.
    """
    if ids.shape != values.shape:
        _check.fail("ids", f"of shape {list(values.shape)} as values is", list(ids.shape))
    channels = values.shape[1]
    column = torch.arange(channels, device=ids.device)
    place = torch.where(ids < 0, num, ids) * channels + column
    flat = reduce_segments(values.reshape(-1, 1), place.reshape(-1), (num + 1) * channels)
    return flat.reshape(num + 1, channels)[:num]


def first_of_segments(ids: torch.Tensor, num: int) -> torch.Tensor:
    """The lowest row of each segment.

    Args:
        ids: int64 [N], each in [0, num).
        num: number of segments.

    Returns:
        int64 [num], -1 for a segment without rows.
    """
    if len(ids) == 0:
        return ids.new_full((num,), -1)
    counts = count_ids(ids, num)
    begins = (running_sum(counts) - counts).clamp(max=len(ids) - 1)
    return torch.where(counts > 0, order_keys(ids)[begins], -1)


def standardize_segments(
    values: torch.Tensor,
    ids: torch.Tensor,
    num: int,
    eps: float,
    groups: int | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Each segment's rows with its mean taken off, over its standard deviation (biased).

    Args:
        values: [N, C].
        ids: int64 [N], in [0, num).
        num: number of segments.
        eps: added to the variance.
        groups: channels share mean and deviation in so many groups; None for each its own.
        weight: C numbers that the result is multiplied by, or None.
        bias: C numbers that are added last, or None.

    Returns:
        [N, C].

    Raises:
        ValueError: if rows, devices, groups, weight or bias do not fit.
        TypeError: if `values` is not floating.
    """
    channels = values.shape[1]
    if groups is not None and channels % _check.positive("groups", groups):
        _check.fail("groups", f"a divisor of {channels} channels", groups)
    _check.per_channel("weight", weight, channels)
    _check.per_channel("bias", bias, channels)

    def mean(rows: torch.Tensor) -> torch.Tensor:
        one = reduce_segments(rows, ids, num, "mean")
        if groups is None:
            return one
        shared = one.reshape(num, groups, -1).mean(2, keepdim=True)
        return shared.expand(num, groups, channels // groups).reshape(num, channels)

    from .rows import affine_rows

    centred = values - spread_segments(mean(values), ids)
    scaled = centred * spread_segments(torch.rsqrt(mean(centred.square()) + eps), ids)
    return affine_rows(scaled, weight, bias)


def spread_segments(values: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Row `ids[i]` of `values` for each i; its gradient is a segment sum, in fixed order.

    Args:
        values: [S, C].
        ids: int64 [N], -1 for a row of zeros.

    Returns:
        [N, C].
    """
    from .voxelize import devoxelize

    return devoxelize(values, ids)


def count_segments(ids: torch.Tensor, num: int) -> torch.Tensor:
    """How many rows each segment has.

    Args:
        ids: integers of any shape; those outside [0, num) count nowhere.
        num: number of segments.

    Returns:
        int64 [num].

    Raises:
        ValueError: if `num` is negative.
        TypeError: if `ids` is not of integers.
    """
    if _check.tensor("ids", ids).is_floating_point() or ids.dtype == torch.bool:
        _check.fail_type("ids", "integers", ids.dtype)
    if num < 0:
        _check.fail("num", ">= 0", num)
    flat = ids.reshape(-1).long()
    return count_ids(flat[(flat >= 0) & (flat < num)], num)


def agreed_labels(
    labels: torch.Tensor, ids: torch.Tensor, num: int, ignore_label: int
) -> torch.Tensor:
    """The label that all rows of a segment bear.

    Args:
        labels: integers [N].
        ids: int64 [N], in [0, num).
        num: number of segments.
        ignore_label: of a segment whose rows differ, or that has none.

    Returns:
        [num], of the labels' dtype.

    Raises:
        ValueError: if rows do not fit.
    """
    _check.same_rows("ids", len(ids), "labels", len(_check.tensor("labels", labels, 1)))
    if labels.is_floating_point():
        _check.fail_type("labels", "integers", labels.dtype)
    some = labels.new_zeros((num,))
    some[ids] = labels  # any of a segment's, against which the others are held
    others = count_ids(ids[labels != some[ids]], num)
    agreed = (others == 0) & (count_ids(ids, num) > 0)
    return torch.where(agreed, some, ignore_label)
