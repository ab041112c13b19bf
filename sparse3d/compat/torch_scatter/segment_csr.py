"""torch_scatter.segment_csr: segments given by bounds along the last axis of `indptr`."""

from __future__ import annotations

import torch

from ...pointops import segments
from .scatter import unknown
from .utils import into, positions

_NAMES = {"sum": "sum", "add": "sum", "mean": "mean", "min": "min", "max": "max"}


def segment_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None, reduce: str = "sum"
) -> torch.Tensor:
    """Reduction of each segment by name."""
    if reduce not in _NAMES:
        unknown(reduce)
    return into(out, segments.segment_csr(src, indptr, _NAMES[reduce])[0])


def segment_sum_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum of each segment."""
    return segment_csr(src, indptr, out, "sum")


segment_add_csr = segment_sum_csr


def segment_mean_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean of each segment; integers are cut towards zero."""
    return segment_csr(src, indptr, out, "mean")


def _extreme(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None, reduce: str
) -> tuple[torch.Tensor, torch.Tensor]:
    value, arg = segments.segment_csr(src, indptr, reduce)
    if arg is None:
        unknown(reduce)
    return positions(out, (value, arg), src.shape[: indptr.dim()][-1])


def segment_min_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum of each segment and its position."""
    return _extreme(src, indptr, out, "min")


def segment_max_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum of each segment and its position."""
    return _extreme(src, indptr, out, "max")


def gather_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Each segment's entry repeated over its length."""
    return into(out, segments.gather_csr(src, indptr))
