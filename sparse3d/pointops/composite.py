"""Composites of scatter reductions: softmax, its logarithm, log-sum-exp, deviation.

Meaning: what torch computes along an axis, over the entries of each segment; segments, `index`,
`dim` and `dim_size` as in `scatter`.
Formula, with m the segment's maximum (its gradient is left out, which changes nothing):
`softmax[j] = exp(src[j] - m) / sum exp(src - m)`; `log_softmax[j] = src[j] - m - log(sum + eps)`;
`logsumexp = log(sum exp(src - m) + eps) + m`; `squares = sum (src - mean)^2`;
`std = sqrt(squares / (max(count - 1, 1) + 1e-6))`, or with `count` where not `unbiased`.
initial: of `logsumexp` one more entry of every segment that has any; of `squares` and `std` added
to the squares.
Empty segments, and those of -inf alone: `logsumexp` is `initial`, or 0; `std` of an empty one is 0
without `initial`. NaN makes its segment NaN.
Dtypes: floating. Accumulation, order, determinism: as `scatter_sum`; the rest in float32 too
(float64 for float64), results and gradients rounded to `src`'s dtype once.
Gradient: to `src` (and `initial`).
Errors: as `scatter_sum`; integers.

Example:
    >>> import torch
    >>> from sparse3d.pointops import scatter_logsumexp, scatter_softmax
    >>> src, index = torch.tensor([0.0, 0.0, 5.0]), torch.tensor([0, 0, 2])
    >>> scatter_softmax(src, index).tolist()
    [0.5, 0.5, 1.0]
    >>> [round(value, 4) for value in scatter_logsumexp(src, index).tolist()]
    [0.6931, 0.0, 5.0]
"""

from __future__ import annotations

import torch

from sparse3d._check import fail, tensor
from sparse3d.ops.order import count_ids
from sparse3d.ops.segment import segment_max

from .scatter import Layout, lay_out, start_of, sum_rows, widened

DEVIATION_EPS = 1e-6


def _layout(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int,
    dim_size: int | None,
    initial: torch.Tensor | None = None,
) -> tuple[Layout, int, torch.Tensor]:
    """Checked arguments, `dim` from the front, and the rows of a floating `src`, widened."""
    if not tensor("src", src).is_floating_point():
        fail("src", "floating", src.dtype, "convert with .float()")
    layout, axis = lay_out(src, index, dim, start_of(src, dim, dim_size, initial))
    return layout, axis, widened(layout.rows(src, axis))


def _shifted(rows: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Rows minus the maximum of their segment."""
    highest: torch.Tensor = segment_max(rows.detach().contiguous(), layout.ids, layout.num)[0]
    return rows - layout.spread(highest)


def scatter_softmax(
    src: torch.Tensor, index: torch.Tensor, dim: int = -1, dim_size: int | None = None
) -> torch.Tensor:
    """Softmax inside each segment.

    Args:
        src: any shape, floating.
        index: int64 or int32, 1-dimensional along `dim` or broadcastable to `src`.
        dim: the axis of the segments.
        dim_size: segments; the largest index + 1 where None.

    Returns:
        `src`'s shape and dtype.
    """
    layout, axis, rows = _layout(src, index, dim, dim_size)
    raised = _shifted(rows, layout).exp()
    soft = raised / layout.spread(sum_rows(raised, layout))
    return layout.entries(soft.to(src.dtype), axis)


def scatter_log_softmax(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    eps: float = 1e-12,
) -> torch.Tensor:
    """Logarithm of the softmax inside each segment; arguments as `scatter_softmax`."""
    layout, axis, rows = _layout(src, index, dim, dim_size)
    shifted = _shifted(rows, layout)
    total = sum_rows(shifted.exp(), layout)
    logged = shifted - layout.spread((total + eps).log())
    return layout.entries(logged.to(src.dtype), axis)


def scatter_logsumexp(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    eps: float = 1e-12,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Logarithm of the sum of exponentials of each segment.

    Args:
        src: as `scatter_softmax`.
        index: as `scatter_softmax`.
        dim: as `scatter_softmax`.
        dim_size: as `scatter_softmax`.
        eps: added to the sum.
        initial: shaped as the result, one more entry of each segment that has any.

    Returns:
        `dim_size` entries along `dim`; `initial`, or 0, where a segment has no entry but -inf.
    """
    layout, axis, rows = _layout(src, index, dim, dim_size, initial)
    start = None if initial is None else widened(layout.rows(initial, axis))
    highest, arg = segment_max(rows.detach().contiguous(), layout.ids, layout.num)
    some = (arg >= 0) & (highest != -torch.inf)
    if start is not None:
        highest = torch.maximum(highest, start.detach())
    base = torch.where(highest.isfinite(), highest, 0)
    total = sum_rows((rows - layout.spread(base)).exp(), layout)
    if start is not None:
        total = total + (start - base).exp()
    found = torch.where(some, (total + eps).log() + base, 0 if start is None else start)
    return layout.restore(found.to(src.dtype), axis)


def _squares(
    rows: torch.Tensor, layout: Layout, start: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared deviations [num, C] and counts [num, 1]."""
    counts = count_ids(layout.ids, layout.num)[:, None].to(rows.dtype)
    mean = sum_rows(rows, layout) / counts.clamp_min(1)
    apart = rows - layout.spread(mean)
    squares = sum_rows(apart * apart, layout)
    return squares if start is None else start + squares, counts


def scatter_squares(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum of the squared deviations from each segment's mean; arguments as `scatter_softmax`."""
    layout, axis, rows = _layout(src, index, dim, dim_size, initial)
    start = None if initial is None else widened(layout.rows(initial, axis))
    return layout.restore(_squares(rows, layout, start)[0].to(src.dtype), axis)


def scatter_std(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    unbiased: bool = True,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Standard deviation of each segment; arguments as `scatter_softmax`.

    Args:
        src: as `scatter_softmax`.
        index: as `scatter_softmax`.
        dim: as `scatter_softmax`.
        dim_size: as `scatter_softmax`.
        unbiased: divide by count - 1.
        initial: shaped as the result, added to the squared deviations.
    """
    layout, axis, rows = _layout(src, index, dim, dim_size, initial)
    start = None if initial is None else widened(layout.rows(initial, axis))
    squares, counts = _squares(rows, layout, start)
    free = (counts - 1).clamp_min(1) if unbiased else counts.clamp_min(1)
    deviation = (squares / (free + DEVIATION_EPS)).sqrt()
    return layout.restore(deviation.to(src.dtype), axis)
