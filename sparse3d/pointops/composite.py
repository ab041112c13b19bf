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
Dtypes: floating. Accumulation, order, determinism: as `scatter_sum`; the rest in `src`'s dtype.
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

from sparse3d._check import fail, fail_type, same_device, tensor

from .scatter import broadcast_index, scatter_max, scatter_sum

DEVIATION_EPS = 1e-6


def _spread(src: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    """The index of every entry of a floating `src`."""
    tensor("src", src)
    tensor("index", index)
    same_device(src=src, index=index)
    if not src.is_floating_point():
        fail("src", "floating", src.dtype, "convert with .float()")
    if index.dtype not in (torch.int64, torch.int32):
        fail_type("index", "int64 or int32", index.dtype, "convert with .long()")
    return broadcast_index(index, src, dim).long()


def _shifted(
    src: torch.Tensor, spread: torch.Tensor, dim: int, dim_size: int | None
) -> torch.Tensor:
    highest = scatter_max(src.detach(), spread, dim, dim_size)[0]
    return src - highest.gather(dim, spread)


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
    spread = _spread(src, index, dim)
    raised = _shifted(src, spread, dim, dim_size).exp()
    return raised / scatter_sum(raised, spread, dim, dim_size).gather(dim, spread)


def scatter_log_softmax(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    eps: float = 1e-12,
) -> torch.Tensor:
    """Logarithm of the softmax inside each segment; arguments as `scatter_softmax`."""
    spread = _spread(src, index, dim)
    shifted = _shifted(src, spread, dim, dim_size)
    total = scatter_sum(shifted.exp(), spread, dim, dim_size)
    return shifted - (total + eps).log().gather(dim, spread)


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
    spread = _spread(src, index, dim)
    if initial is not None:
        dim_size = initial.shape[dim]
    highest, arg = scatter_max(src.detach(), spread, dim, dim_size)
    some = (arg >= 0) & (highest != -torch.inf)
    if initial is not None:
        highest = torch.maximum(highest, initial.detach())
    base = torch.where(highest.isfinite(), highest, 0)
    total = scatter_sum((src - base.gather(dim, spread)).exp(), spread, dim, dim_size)
    if initial is not None:
        total = total + (initial - base).exp()
    return torch.where(some, (total + eps).log() + base, 0 if initial is None else initial)


def scatter_squares(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum of the squared deviations from each segment's mean; arguments as `scatter_softmax`."""
    return _squares(src, _spread(src, index, dim), dim, dim_size, initial)[0]


def _squares(
    src: torch.Tensor,
    spread: torch.Tensor,
    dim: int,
    dim_size: int | None,
    initial: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared deviations and counts."""
    if initial is not None:
        dim_size = initial.shape[dim]
    counts = scatter_sum(torch.ones_like(src), spread, dim, dim_size)
    mean = scatter_sum(src, spread, dim, dim_size) / counts.clamp_min(1)
    apart = src - mean.gather(dim, spread)
    return scatter_sum(apart * apart, spread, dim, dim_size, initial=initial), counts


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
    squares, counts = _squares(src, _spread(src, index, dim), dim, dim_size, initial)
    free = (counts - 1).clamp_min(1) if unbiased else counts.clamp_min(1)
    return (squares / (free + DEVIATION_EPS)).sqrt()
