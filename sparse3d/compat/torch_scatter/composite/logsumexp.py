"""torch_scatter.composite.logsumexp."""

from __future__ import annotations

import torch

from ....pointops import composite
from ..utils import into


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
