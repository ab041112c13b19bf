"""torch_scatter.scatter: reductions by index, with torch_scatter's `out` and empty conventions."""

from __future__ import annotations

from typing import NoReturn

import torch

from ... import pointops
from ...pointops.scatter import lay_out
from .utils import broadcast


def _size(out: torch.Tensor | None, dim: int, dim_size: int | None) -> int | None:
    return dim_size if out is None else int(out.shape[dim])


def scatter_sum(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Sum of each segment; added to `out` where given."""
    total = pointops.scatter_sum(src, index, dim, _size(out, dim, dim_size))
    return total if out is None else out.add_(total)


scatter_add = scatter_sum


def scatter_mul(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Product of each segment, 1 where empty; multiplied into `out` where given."""
    size = list(src.shape)
    # The layout's checks are those of every other reduction.
    size[dim] = lay_out(src, index, dim, _size(out, dim, dim_size))[0].size
    spread = broadcast(index, src, dim).long()
    if out is None:
        return src.new_ones(size).scatter_reduce(dim, spread, src, "prod")
    return out.copy_(out.scatter_reduce(dim, spread, src, "prod"))


def scatter_mean(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Mean of each segment; `out` counts into the sum where given. Integers are floored."""
    return mean(src, index, dim, out, dim_size, "floor")


def mean(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int,
    out: torch.Tensor | None,
    dim_size: int | None,
    rounding: str,
) -> torch.Tensor:
    """`scatter_mean` with the rounding of integers by name."""
    if out is None and (src.is_floating_point() or rounding == "floor"):
        return pointops.scatter_mean(src, index, dim, dim_size)
    total = pointops.scatter_sum(src, index, dim, _size(out, dim, dim_size))
    ones = torch.ones_like(broadcast(index, src, dim), dtype=torch.int64)
    counts = pointops.scatter_sum(ones, index, dim, total.shape[dim]).clamp_min(1)
    total = total if out is None else out + total
    mode = None if total.is_floating_point() else rounding
    result = torch.div(total, counts.to(total.dtype), rounding_mode=mode)
    return result if out is None else out.copy_(result)


def _extreme(
    found: tuple[torch.Tensor, torch.Tensor],
    rows: int,
    out: torch.Tensor | None,
    largest: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    value, arg = found
    arg = torch.where(arg >= 0, arg, rows)
    if out is None:
        return value, arg
    wins = (arg < rows) & ((value > out) if largest else (value < out))
    return out.copy_(torch.where(wins, value, out)), torch.where(wins, arg, rows)


def scatter_min(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum and its position; 0 and `src.size(dim)` where a segment is empty."""
    found = pointops.scatter_min(src, index, dim, _size(out, dim, dim_size))
    return _extreme(found, src.shape[dim], out, largest=False)


def scatter_max(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum and its position; 0 and `src.size(dim)` where a segment is empty."""
    found = pointops.scatter_max(src, index, dim, _size(out, dim, dim_size))
    return _extreme(found, src.shape[dim], out, largest=True)


def unknown(reduce: str) -> NoReturn:
    """The error of a reduction that does not exist."""
    raise ValueError(f"reduce must be sum, add, mul, mean, min or max, got {reduce!r}")


def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Reduction of each segment by name; no positions."""
    if reduce in ("sum", "add"):
        return scatter_sum(src, index, dim, out, dim_size)
    if reduce == "mul":
        return scatter_mul(src, index, dim, out, dim_size)
    if reduce == "mean":
        return scatter_mean(src, index, dim, out, dim_size)
    if reduce == "min":
        return scatter_min(src, index, dim, out, dim_size)[0]
    if reduce == "max":
        return scatter_max(src, index, dim, out, dim_size)[0]
    unknown(reduce)
