"""`torchsparse.point_tensor`."""

from __future__ import annotations

from typing import Any

import torch

from ..torchsparse.tensor import PointTensor as _PointTensor

__all__ = ["PointTensor"]


class PointTensor(_PointTensor):
    """Features at points.

    Args:
        feat: [N, C].
        coords: floating [N, 4] (x, y, z, batch).
        idx_query: rows of voxels by stride.
        weights: weights of voxels by stride.
    """

    def __init__(
        self,
        feat: torch.Tensor,
        coords: torch.Tensor,
        idx_query: dict[Any, Any] | None = None,
        weights: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__(feat, coords, idx_query, weights)
