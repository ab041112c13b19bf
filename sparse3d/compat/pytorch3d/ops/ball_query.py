"""pytorch3d.ops.ball_query."""

from __future__ import annotations

import torch

from ....pointops import _inputs
from ....pointops.ball_query import search
from .knn import _KNN, padded_pair
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
    p1, p2, clouds = padded_pair(p1, p2, lengths1, lengths2)
    square = _inputs.squared_radius("radius", radius, p1.dtype, flat=False)
    _inputs.count("K", K, 0)
    batch, queries, dim = p1.shape
    distances, indices = search(p1.reshape(-1, dim), p2.reshape(-1, dim), clouds, square, K)
    indices = indices.view(batch, queries, K)
    near = masked_gather(p2, indices) if return_nn else None
    return _KNN(distances.to(p1.dtype).view(batch, queries, K), indices, near)
