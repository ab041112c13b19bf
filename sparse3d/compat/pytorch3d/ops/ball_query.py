"""pytorch3d.ops.ball_query."""

from __future__ import annotations

import torch

from ....pointops import padded
from .knn import _KNN
from .utils import masked_gather


def ball_query(
    p1: torch.Tensor,
    p2: torch.Tensor,
    lengths1: torch.Tensor | None = None,
    lengths2: torch.Tensor | None = None,
    K: int = 500,
    radius: float = 0.2,
    return_nn: bool = True,
    skip_points_outside_cube: bool = False,
) -> _KNN:
    """The first K points within `radius`: squared distances (pad 0), indices (pad -1), points.

    `skip_points_outside_cube` is accepted: it never changes the result.
    """
    distances, indices = padded.ball_query(p1, p2, lengths1, lengths2, K, radius)
    near = masked_gather(p2, indices) if return_nn else None
    return _KNN(distances, indices, near)
