"""Rows of one tensor in another."""

from __future__ import annotations

import torch

from ..MinkowskiSparseTensor import SparseTensor
from ..MinkowskiTensor import COORDINATE_MANAGER_DIFFERENT_ERROR

__all__ = ["get_coords_map"]


def get_coords_map(x: SparseTensor, y: SparseTensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of `x` and the rows of `y` whose cells they lie in; `y` is derived from `x`."""
    if x.coordinate_manager is not y.coordinate_manager:
        raise ValueError(COORDINATE_MANAGER_DIFFERENT_ERROR)
    pairs = x.coordinate_manager.stride_map(x.coordinate_map_key, y.coordinate_map_key)
    return pairs[0], pairs[1]
