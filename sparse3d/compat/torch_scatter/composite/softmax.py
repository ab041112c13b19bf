"""torch_scatter.composite.softmax."""

from __future__ import annotations

import torch

from ....pointops import composite

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
