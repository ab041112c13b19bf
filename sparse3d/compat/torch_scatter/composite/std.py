"""torch_scatter.composite.std."""

from __future__ import annotations

import torch

from ....pointops import composite


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
