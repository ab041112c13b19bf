"""Pooling over a kernel map: sum, mean, maximum; transposed by handing over the transposed map.

    sum[q] = sum over pairs (p, q) of features[p];  mean = sum / number of pairs;  max = maximum
    over pairs, per channel

*Shapes.* features [N, C], out [M, C]. *Dtypes.* float32, float16, bfloat16, float64. *Order and
ties.* Taps ascend; of equal maxima the lowest tap wins and takes the whole gradient (in spconv each
takes all of it, see `ties`). NaN wins over any number, as in torch. *Padding.* Absent sites do not
take part: the maximum is the true one (spconv's starts from 0, see `floor_at_zero`), the mean
divides by the sites present. A row without pairs is 0. *Accumulation.* float32 (float64 for
float64), one rounding. *Gradient.* To features; the sum's is the sum over the transposed map.
*Determinism.* Fixed order, no atomics.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

import torch

from .. import _check
from .._registry import Op
from ._conv_reference import _accumulator
from .conv import PairSet
from .segment import reduce_segments, spread_segments

__all__ = ["max_pool", "mean_pool", "sum_pool"]

TIES = ("first", "all")


def _ranges(splits: torch.Tensor) -> list[tuple[int, int]]:
    bounds = splits.tolist()
    return [(a, b) for a, b in itertools.pairwise(bounds) if b > a]


def _turns(rows: torch.Tensor) -> Iterator[torch.Tensor | slice]:
    """Split a tap's pairs so that no turn writes a row twice: sites that repeat make it so."""
    counts = torch.bincount(rows)
    repeats = int(counts.max())
    if repeats == 1:
        yield slice(None)
        return
    order = torch.argsort(rows, stable=True)
    place = torch.arange(len(rows), device=rows.device)
    rank = torch.empty_like(order)
    rank[order] = place - (counts.cumsum(0) - counts)[rows[order].long()]
    for turn in range(repeats):
        yield (rank == turn).nonzero().squeeze(1)


def _sum_reference(
    features: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_out: int
) -> torch.Tensor:
    """Add each tap's rows in turn."""
    rows = features.to(_accumulator(features.dtype))
    out = rows.new_zeros((num_out, features.shape[1]))
    for begin, end in _ranges(splits):
        out.index_add_(0, dst[begin:end].long(), rows.index_select(0, src[begin:end]))
    return out.to(features.dtype)


def _max_reference(
    features: torch.Tensor, src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_out: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compare each tap's rows in turn; a later pair must be greater to win."""
    out = features.new_zeros((num_out, features.shape[1]))
    arg = torch.full(out.shape, -1, dtype=torch.int32, device=out.device)
    for begin, end in _ranges(splits):
        for turn in _turns(dst[begin:end]):
            rows, sources = dst[begin:end][turn].long(), src[begin:end][turn]
            value, best, owner = features.index_select(0, sources), out[rows], arg[rows]
            wins = (owner < 0) | (value > best) | (value.isnan() & ~best.isnan())
            out[rows] = torch.where(wins, value, best)
            arg[rows] = torch.where(wins, sources[:, None].expand_as(owner), owner)
    return out, arg


def _max_grad_reference(
    grad: torch.Tensor,
    arg: torch.Tensor,
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    num_in: int,
) -> torch.Tensor:
    """Each output hands its gradient to the input that won, tap by tap."""
    upstream = grad.to(_accumulator(grad.dtype))
    out = upstream.new_zeros((num_in, grad.shape[1]))
    for begin, end in _ranges(splits):
        rows, sources = dst[begin:end].long(), src[begin:end]
        won = arg[rows] == sources[:, None]
        out.index_add_(0, sources.long(), torch.where(won, upstream[rows], 0))
    return out.to(grad.dtype)


_PAIRS = "Tensor src, Tensor dst, Tensor splits"

pool_sum = Op(
    f"pool_sum(Tensor features, {_PAIRS}, SymInt num_out) -> Tensor",
    reference=_sum_reference,
    fake=lambda features, src, dst, splits, num_out: features.new_empty(
        (num_out, features.shape[1])
    ),
)
pool_max = Op(
    f"pool_max(Tensor features, {_PAIRS}, SymInt num_out) -> (Tensor, Tensor)",
    reference=_max_reference,
    fake=lambda features, src, dst, splits, num_out: (
        features.new_empty((num_out, features.shape[1])),
        features.new_empty((num_out, features.shape[1]), dtype=torch.int32),
    ),
)
pool_max_grad = Op(
    f"pool_max_grad(Tensor grad, Tensor arg, {_PAIRS}, SymInt num_in) -> Tensor",
    reference=_max_grad_reference,
    fake=lambda grad, arg, src, dst, splits, num_in: grad.new_empty((num_in, grad.shape[1])),
)


def _sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    features, src, dst, splits, _ = inputs
    ctx.save_for_backward(src, dst, splits)
    ctx.rows = features.shape[0]


def _sum_gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    src, dst, splits = ctx.saved_tensors
    return pool_sum(grad.contiguous(), dst, src, splits, ctx.rows), None, None, None, None


def _max_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    features, src, dst, splits, _ = inputs
    arg = output[1]
    ctx.mark_non_differentiable(arg)
    ctx.save_for_backward(arg, src, dst, splits)
    ctx.rows = features.shape[0]


def _max_gradient(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
    arg, src, dst, splits = ctx.saved_tensors
    return pool_max_grad(grad.contiguous(), arg, src, dst, splits, ctx.rows), None, None, None, None


def _max_grad_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[1])


def _max_grad_gradient(ctx: Any, second: torch.Tensor) -> tuple[Any, ...]:
    (arg,) = ctx.saved_tensors
    if second.shape[0] == 0:
        return second.new_zeros(arg.shape), None, None, None, None, None
    won = second.gather(0, arg.clamp(min=0).long())
    return torch.where(arg >= 0, won, 0), None, None, None, None, None


pool_sum.gradient(_sum_gradient, _sum_setup)
pool_max.gradient(_max_gradient, _max_setup)
pool_max_grad.gradient(_max_grad_gradient, _max_grad_setup)


def _check_pool(features: torch.Tensor, pairs: PairSet) -> None:
    _check.features("features", features)
    _check.same_device(features=features, src=pairs.src)
    _check.same_rows("features", features.shape[0], "the kernel map's input side", pairs.num_in)


def sum_pool(features: torch.Tensor, pairs: PairSet) -> torch.Tensor:
    """Sum of the inputs that reach each output.

    Args:
        features: [N, C].
        pairs: a `KernelMap`; its transposed twin makes the unpooling of MinkowskiEngine.

    Returns:
        [M, C].

    Raises:
        ValueError: if rows or devices do not fit together.
        TypeError: if `features` is not floating.
    """
    _check_pool(features, pairs)
    rows = features.contiguous()
    return cast(torch.Tensor, pool_sum(rows, pairs.src, pairs.dst, pairs.splits, pairs.num_out))


def mean_pool(features: torch.Tensor, pairs: PairSet) -> torch.Tensor:
    """Mean of the inputs that reach each output; absent sites do not count.

    Args:
        features: [N, C].
        pairs: a `KernelMap`.

    Returns:
        [M, C].

    Raises:
        ValueError: if rows or devices do not fit together.
        TypeError: if `features` is not floating.
    """
    _check_pool(features, pairs)
    total = sum_pool(features.to(_accumulator(features.dtype)), pairs)
    ones = total.new_ones((pairs.num_in, 1))
    count = cast(torch.Tensor, pool_sum(ones, pairs.src, pairs.dst, pairs.splits, pairs.num_out))
    return (total / count.clamp(min=1)).to(features.dtype)


def max_pool(
    features: torch.Tensor,
    pairs: PairSet,
    *,
    floor_at_zero: bool = False,
    ties: str = "first",
) -> torch.Tensor:
    """Maximum of the inputs that reach each output, per channel.

    Args:
        features: [N, C].
        pairs: a `KernelMap`.
        floor_at_zero: start from 0 as spconv 2.3.8 does, so that no output is negative.
        ties: who takes the gradient of an output: "first", the winner alone; "all", every input
            that equals the output takes all of it, as in spconv.

    Returns:
        [M, C].

    Raises:
        ValueError: if rows or devices do not fit together, or `ties` is another word.
        TypeError: if `features` is not floating.
    """
    _check_pool(features, pairs)
    if ties not in TIES:
        _check.fail("ties", f"one of {TIES}", repr(ties))
    rows = features.contiguous()
    every = ties == "all" and torch.is_grad_enabled() and rows.requires_grad
    given = rows.detach() if every else rows
    out = cast(torch.Tensor, pool_max(given, pairs.src, pairs.dst, pairs.splits, pairs.num_out)[0])
    if floor_at_zero:
        out = out.clamp(min=0)
    return out + _ties(rows, out, pairs) if every else out


def _ties(rows: torch.Tensor, out: torch.Tensor, pairs: PairSet) -> torch.Tensor:
    """Zeros [M, C] that lead each output's gradient to every finite input equal to it."""
    met = spread_segments(rows, pairs.src.long())
    at = pairs.dst.long()
    tied = (met.detach() == out[at]) & met.detach().isfinite()
    return reduce_segments(torch.where(tied, met - met.detach(), 0), at, pairs.num_out)
