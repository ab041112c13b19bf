"""torch_scatter.composite: softmax, log-sum-exp and deviation of segments."""

from __future__ import annotations

import torch

from ..scatter import scatter_max, scatter_sum
from ..utils import broadcast

__all__ = ["scatter_log_softmax", "scatter_logsumexp", "scatter_softmax", "scatter_std"]


def _shifted(
    src: torch.Tensor, index: torch.Tensor, dim: int, dim_size: int | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if not src.is_floating_point():
        raise ValueError(f"src must be floating, got {src.dtype}; convert with .float()")
    spread = broadcast(index, src, dim)
    highest = scatter_max(src.detach(), spread, dim, None, dim_size)[0]
    return src - highest.gather(dim, spread), spread, highest


def scatter_softmax(
    src: torch.Tensor, index: torch.Tensor, dim: int = -1, dim_size: int | None = None
) -> torch.Tensor:
    """Softmax inside each segment."""
    shifted, spread, _ = _shifted(src, index, dim, dim_size)
    raised = shifted.exp()
    return raised / scatter_sum(raised, spread, dim, None, dim_size).gather(dim, spread)


def scatter_log_softmax(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    eps: float = 1e-12,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Logarithm of the softmax inside each segment."""
    shifted, spread, _ = _shifted(src, index, dim, dim_size)
    total = scatter_sum(shifted.exp(), spread, dim, None, dim_size)
    return shifted - (total + eps).log().gather(dim, spread)


def scatter_logsumexp(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    eps: float = 1e-12,
) -> torch.Tensor:
    """Logarithm of the sum of exponentials of each segment, 0 where empty.

    `out` where given counts as one more entry of each segment that has any.
    """
    if out is not None:
        dim_size = int(out.shape[dim])
    if not src.is_floating_point():
        raise ValueError(f"src must be floating, got {src.dtype}; convert with .float()")
    spread = broadcast(index, src, dim)
    highest, arg = scatter_max(src.detach(), spread, dim, None, dim_size)
    some = (arg < src.shape[dim]) & (highest > -torch.inf)
    base = torch.where(highest.isfinite(), highest, 0)
    total = scatter_sum((src - base.gather(dim, spread)).exp(), spread, dim, None, dim_size)
    if out is not None:
        total = total + (out - base).exp()
    result = torch.where(some, (total + eps).log() + base, 0)
    return result if out is None else out.copy_(result)


def scatter_std(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    unbiased: bool = True,
) -> torch.Tensor:
    """Standard deviation of each segment; squares are added to `out` where given."""
    if out is not None:
        dim_size = int(out.shape[dim])
    spread = broadcast(index, src, dim)
    counts = scatter_sum(torch.ones_like(src), spread, dim, None, dim_size)
    mean = scatter_sum(src, spread, dim, None, dim_size) / counts.clamp_min(1)
    apart = src - mean.gather(dim, spread)
    total = scatter_sum(apart * apart, spread, dim, out, dim_size)
    free = (counts - 1).clamp_min(1) if unbiased else counts.clamp_min(1)
    return (total / (free + 1e-6)).sqrt()
