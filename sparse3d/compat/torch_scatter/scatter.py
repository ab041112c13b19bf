"""torch_scatter.scatter: reductions by index, with torch_scatter's `out` and empty conventions."""

from __future__ import annotations

from typing import NoReturn

import torch

from ... import pointops
from .utils import into, positions


def scatter_sum(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Sum of each segment; added to `out` where given."""
    return into(out, pointops.scatter_sum(src, index, dim, size(out, dim_size), initial=out))


def size(out: torch.Tensor | None, dim_size: int | None) -> int | None:
    """`dim_size`, which `out` overrides."""
    return dim_size if out is None else None


scatter_add = scatter_sum


def scatter_mul(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Product of each segment, 1 where empty; multiplied into `out` where given."""
    start = None if out is None else out.clone()  # a gradient keeps what it was
    return into(out, pointops.scatter_mul(src, index, dim, size(out, dim_size), initial=start))


def scatter_mean(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Mean of each segment; `out` counts into the sum where given. Integers are floored."""
    return into(out, pointops.scatter_mean(src, index, dim, size(out, dim_size), initial=out))


def scatter_min(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum and its position; 0 and `src.size(dim)` where a segment is empty."""
    found = pointops.scatter_min(src, index, dim, size(out, dim_size), initial=out)
    return positions(out, found, src.shape[dim])


def scatter_max(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum and its position; 0 and `src.size(dim)` where a segment is empty."""
    found = pointops.scatter_max(src, index, dim, size(out, dim_size), initial=out)
    return positions(out, found, src.shape[dim])


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
