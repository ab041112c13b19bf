"""torch_scatter.composite: softmax, log-sum-exp and deviation of segments."""

from __future__ import annotations

import torch

from ....pointops import composite
from ..utils import into

__all__ = ["scatter_log_softmax", "scatter_logsumexp", "scatter_softmax", "scatter_std"]

scatter_softmax = composite.scatter_softmax


def scatter_log_softmax(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    eps: float = 1e-12,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Logarithm of the softmax inside each segment."""
    return composite.scatter_log_softmax(src, index, dim, dim_size, eps=eps)


def scatter_logsumexp(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    eps: float = 1e-12,
) -> torch.Tensor:
    """Logarithm of the sum of exponentials of each segment, 0 where empty.

    `out` where given counts as one more entry of each segment that has any; others keep theirs.
    """
    start = None if out is None else out.clone()  # a gradient keeps what it was
    found = composite.scatter_logsumexp(src, index, dim, dim_size, eps=eps, initial=start)
    return into(out, found)


def scatter_std(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    unbiased: bool = True,
) -> torch.Tensor:
    """Standard deviation of each segment; squares are added to `out` where given."""
    found = composite.scatter_std(src, index, dim, dim_size, unbiased=unbiased, initial=out)
    if out is not None:
        out.copy_(composite.scatter_squares(src, index, dim, initial=out))
    return found
