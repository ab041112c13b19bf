"""Interpolation at continuous points."""

from __future__ import annotations

from typing import Any

import torch

from ...ops.voxelize import interpolate
from ._backend._C import CoordinateMapKey
from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor

__all__ = ["MinkowskiInterpolation", "MinkowskiInterpolationFunction"]


class MinkowskiInterpolationFunction:
    """`apply` interpolates feature rows."""

    @staticmethod
    def apply(
        input_features: torch.Tensor,
        tfield: torch.Tensor,
        in_coordinate_map_key: CoordinateMapKey,
        coordinate_manager: CoordinateManager | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Features [Q, C] at points [Q, 1 + D], then input rows, point rows and weights."""
        assert coordinate_manager is not None
        rows, weights = coordinate_manager.corners(in_coordinate_map_key, tfield)
        weights = weights.to(input_features.dtype)
        out = interpolate(input_features.contiguous(), rows, weights)
        point, corner = (rows >= 0).nonzero(as_tuple=True)
        return out, rows[point, corner], point, weights[point, corner]


class MinkowskiInterpolation(MinkowskiModuleBase):
    """Features at continuous points, linear between sites; absent sites count 0.

    Args:
        return_kernel_map: give input rows and point rows too.
        return_weights: give the weights too.
    """

    def __init__(self, return_kernel_map: bool = False, return_weights: bool = False) -> None:
        super().__init__()
        self.return_kernel_map = return_kernel_map
        self.return_weights = return_weights
        self.interp = MinkowskiInterpolationFunction()

    def forward(self, input: SparseTensor, tfield: torch.Tensor) -> Any:
        """Interpolate at `tfield` [Q, 1 + D], batch id first."""
        out, in_map, out_map, weights = self.interp.apply(
            input.F, tfield, input.coordinate_map_key, input._manager
        )
        made: list[Any] = [out]
        if self.return_kernel_map:
            made.append((in_map, out_map))
        if self.return_weights:
            made.append(weights)
        return out if len(made) == 1 else tuple(made)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
