"""torch_scatter.segment_coo: sorted indices along the last axis of `index`."""

from __future__ import annotations

import torch

from ...pointops import segments
from .scatter import size, unknown
from .utils import into, positions

_NAMES = {"sum": "sum", "add": "sum", "mean": "mean", "min": "min", "max": "max"}


def segment_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Reduction of each segment by name; `out` where given is where it starts from."""
    if reduce not in _NAMES:
        unknown(reduce)
    name = _NAMES[reduce]
    return into(out, segments.segment_coo(src, index, size(out, dim_size), name, initial=out)[0])


def segment_sum_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Sum of each segment."""
    return segment_coo(src, index, out, dim_size, "sum")


segment_add_coo = segment_sum_coo


def segment_mean_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Mean of each segment; integers are cut towards zero."""
    return segment_coo(src, index, out, dim_size, "mean")


def _extreme(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None,
    dim_size: int | None,
    reduce: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    value, arg = segments.segment_coo(src, index, size(out, dim_size), reduce, initial=out)
    if arg is None:
        unknown(reduce)
    return positions(out, (value, arg), src.shape[: index.dim()][-1])


def segment_min_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum of each segment and its position."""
    return _extreme(src, index, out, dim_size, "min")


def segment_max_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum of each segment and its position."""
    return _extreme(src, index, out, dim_size, "max")


def gather_coo(
    src: torch.Tensor, index: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The segment's entry for every index."""
    return into(out, segments.gather_coo(src, index))
