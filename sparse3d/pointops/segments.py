"""Reductions of runs of entries: sorted indices (COO) or bounds (CSR) along an axis.

Meaning: `segment_coo` is the scatter reduction by an index that ascends along its last axis;
`segment_csr` reduces `src[indptr[s] : indptr[s + 1]]` to entry s; `gather_coo` and `gather_csr` go
the other way and repeat entry s over its run.
Shapes: the reduced axis is the last one of `index` or `indptr`, whose other axes are leading axes
of `src` (1 stands for all of them). Bounds need not start at 0 nor end at the last entry: entries
outside them count nowhere.
Reductions: "sum", "mean" (integers are cut towards zero), "min", "max".
arg: of "min" and "max" the int64 position along the axis, the lowest of equals, -1 where empty.
Empty segments: 0. initial (COO): as in `scatter`.
Order, accumulation, determinism: as `scatter_sum`. Gradient: to `src`.
Errors: an index that decreases or is negative, bounds that decrease or leave the axis.

Example:
    >>> import torch
    >>> from sparse3d.pointops import segments
    >>> src = torch.tensor([1.0, 2.0, 3.0, 4.0])
    >>> segments.segment_csr(src, torch.tensor([0, 3, 3, 4]))[0].tolist()
    [6.0, 0.0, 4.0]
    >>> segments.gather_csr(torch.tensor([7.0, 8.0]), torch.tensor([0, 2, 3])).tolist()
    [7.0, 7.0, 8.0]
"""

from __future__ import annotations

import math

import torch

from sparse3d._check import fail, fail_type, same_device, tensor
from sparse3d.ops.segment import take_rows

from ._inputs import index as indices
from ._inputs import values_known
from .scatter import scatter_max, scatter_mean, scatter_min, scatter_sum

REDUCTIONS = ("sum", "mean", "min", "max")


def _reduce(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int,
    size: int | None,
    reduce: str,
    initial: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if reduce == "sum":
        return scatter_sum(src, index, dim, size, initial=initial), None
    if reduce == "mean":
        return scatter_mean(src, index, dim, size, rounding="trunc", initial=initial), None
    run = scatter_min if reduce == "min" else scatter_max
    return run(src, index, dim, size, initial=initial)


def _known(reduce: str) -> None:
    if reduce not in REDUCTIONS:
        fail("reduce", f"one of {REDUCTIONS}", repr(reduce))


def segment_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    dim_size: int | None = None,
    reduce: str = "sum",
    *,
    initial: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Reduce the runs of equal indices.

    Args:
        src: any shape; floating or integer.
        index: int64 or int32, ascending along its last axis, which is the reduced one.
        dim_size: segments; the largest index + 1 where None.
        reduce: "sum", "mean", "min" or "max".
        initial: values to start from, shaped as the result.

    Returns:
        `(out, arg)`; `arg` is None for "sum" and "mean".
    """
    _known(reduce)
    tensor("index", index)
    if index.ndim < 1:
        fail("index", "of at least one axis", f"shape {list(index.shape)}")
    if values_known(index) and bool((index[..., 1:] < index[..., :-1]).any()):
        fail("index", "sorted along its last axis", "one that decreases", "use scatter instead")
    return _reduce(src, index, index.ndim - 1, dim_size, reduce, initial)


def gather_coo(src: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The entry of `src` that each index names.

    Args:
        src: any shape.
        index: int64 or int32, its last axis is the gathered one.

    Returns:
        `src`'s shape with the index's length along that axis.
    """
    tensor("index", index)
    same_device(src=tensor("src", src), index=index)
    if not 1 <= index.ndim <= src.ndim:
        fail("index", f"of 1 to {src.ndim} axes", list(index.shape))
    dim = index.ndim - 1
    return _gather(src, indices("index", index, index.ndim, src.shape[dim], pad=False).long(), dim)


def _gather(src: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    """`src` [leading, S, rest] at [leading, E], as rows: the gradient is a sum in order."""
    lead, size, rest = src.shape[:dim], src.shape[dim], src.shape[dim + 1 :]
    outer, inner = math.prod(lead), math.prod(rest)
    length = index.shape[-1]
    at = index.expand(*lead, length).reshape(outer, length)
    at = (at + torch.arange(outer, device=at.device)[:, None] * size).reshape(-1)
    rows = src.reshape(outer * size, inner)
    taken = take_rows(rows, at) if src.is_floating_point() else rows[at]
    return taken.reshape(*lead, length, *rest)


def _bounds(indptr: torch.Tensor, src: torch.Tensor) -> tuple[torch.Tensor, int, int]:
    """Bounds that ascend, for every leading row of `src`; the lowest and the highest of them."""
    tensor("indptr", indptr)
    same_device(indptr=indptr, src=tensor("src", src))
    if indptr.dtype not in (torch.int32, torch.int64):
        fail_type("indptr", "int64 or int32", indptr.dtype, "convert with .long()")
    if not 1 <= indptr.ndim <= src.ndim:
        fail("indptr", f"of 1 to {src.ndim} axes", list(indptr.shape))
    if indptr.shape[-1] == 0:  # no bounds, no runs
        indptr = indptr.new_zeros((*indptr.shape[:-1], 1))
    if bool((indptr[..., 1:] < indptr[..., :-1]).any()):
        fail("indptr", "ascending along its last axis", "bounds that decrease")
    indptr = indptr.expand(*src.shape[: indptr.ndim - 1], indptr.shape[-1])
    if not indptr.numel():
        return indptr, 0, 0
    low, high = (int(bound) for bound in torch.aminmax(indptr))
    return indptr, low, high


def run_ids(indptr: torch.Tensor, length: int) -> torch.Tensor:
    """Segment of each entry, for every row of bounds."""
    place = torch.arange(length, device=indptr.device, dtype=indptr.dtype)
    place = place.expand(*indptr.shape[:-1], length).contiguous()
    return torch.searchsorted(indptr[..., 1:].contiguous(), place, right=True)


def segment_csr(
    src: torch.Tensor, indptr: torch.Tensor, reduce: str = "sum"
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Reduce the runs between bounds.

    Args:
        src: any shape; floating or integer.
        indptr: int64 or int32, S + 1 ascending bounds along its last axis, which is the reduced
            one.
        reduce: "sum", "mean", "min" or "max".

    Returns:
        `(out, arg)`, S entries along the axis; `arg` is None for "sum" and "mean".
    """
    _known(reduce)
    indptr, first, last = _bounds(indptr, src)
    dim = indptr.ndim - 1
    if first < 0 or last > src.shape[dim]:
        fail("indptr", f"in [0, {src.shape[dim]}]", first if first < 0 else last)
    ids = run_ids(indptr, last)
    segments = indptr.shape[-1] - 1
    kept = src.narrow(dim, 0, last)
    if bool((indptr[..., 0] == 0).all() & (indptr[..., -1] == last).all()):
        return _reduce(kept, ids, dim, segments, reduce)
    # Entries outside the bounds of their row make a segment of their own, which is left out.
    before = torch.arange(last, device=indptr.device) < indptr[..., :1]
    out, arg = _reduce(kept, torch.where(before, segments, ids), dim, segments + 1, reduce)
    return out.narrow(dim, 0, segments), None if arg is None else arg.narrow(dim, 0, segments)


def gather_csr(src: torch.Tensor, indptr: torch.Tensor) -> torch.Tensor:
    """Each segment's entry repeated over its run.

    Args:
        src: any shape, S entries along the axis.
        indptr: as `segment_csr`.

    Returns:
        `src`'s shape with as many entries along the axis as the last bound says; those before the
        first bound repeat the first entry.
    """
    indptr, first, last = _bounds(indptr, src)
    dim, runs = indptr.ndim - 1, indptr.shape[-1] - 1
    if src.shape[dim] != runs:
        fail("src", f"of {runs} entries along axis {dim}, one a run", src.shape[dim])
    if first < 0 or bool((indptr[..., -1] != last).any()):
        fail("indptr", "from 0 on, its rows ending at one bound", "others")
    return _gather(src, run_ids(indptr, last), dim)
