"""torch_scatter.utils."""

from __future__ import annotations

import torch


def broadcast(src: torch.Tensor, other: torch.Tensor, dim: int) -> torch.Tensor:
    """`src` with axes added until it has the shape of `other`."""
    if dim < 0:
        dim += other.dim()
    if src.dim() == 1:
        src = src.reshape([1] * dim + [-1])
    return src.reshape([*src.shape, *[1] * (other.dim() - src.dim())]).expand(other.size())
