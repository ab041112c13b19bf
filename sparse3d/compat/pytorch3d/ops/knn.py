"""pytorch3d.ops.knn."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ....pointops import padded
from ....pointops.padded import knn_gather

__all__ = ["knn_gather", "knn_points"]


class _KNN(NamedTuple):
    dists: torch.Tensor
    idx: torch.Tensor
    knn: torch.Tensor | None


def knn_points(
    p1: torch.Tensor,
    p2: torch.Tensor,
    lengths1: torch.Tensor | None = None,
    lengths2: torch.Tensor | None = None,
    norm: int = 2,
    K: int = 1,
    version: int = -1,
    return_nn: bool = False,
    return_sorted: bool = True,
) -> _KNN:
    """Squared (norm 2) or L1 distances, int64 indices, and the neighbours if `return_nn`.

    Distances and indices are 0 where a cloud has fewer than K points. `version` is accepted and
    results are sorted whatever `return_sorted` says.
    """
    distances, indices = padded.knn_points(p1, p2, lengths1, lengths2, norm, K)
    near = knn_gather(p2, indices, lengths2) if return_nn else None
    return _KNN(distances, indices, near)
