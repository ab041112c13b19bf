"""Broadcasts: a row for each sample onto the sample's sites."""

from __future__ import annotations

import torch

from ... import _check
from ...ops.rows import combine_segments
from ...ops.segment import spread_segments
from ._backend._C import BroadcastMode, CoordinateMapKey
from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor

__all__ = [
    "MinkowskiBroadcast",
    "MinkowskiBroadcastAddition",
    "MinkowskiBroadcastBase",
    "MinkowskiBroadcastConcatenation",
    "MinkowskiBroadcastFunction",
    "MinkowskiBroadcastMultiplication",
]


def _samples(
    in_key: CoordinateMapKey, glob_key: CoordinateMapKey, manager: CoordinateManager
) -> torch.Tensor:
    """Each site's row in a global pool's output."""
    if set(glob_key.get_tensor_stride()) != {0}:
        _check.fail("input_glob", "a global pool's output (tensor stride 0)", glob_key)
    return manager.batch_rows(in_key)


class MinkowskiBroadcastFunction:
    """`apply` broadcasts feature rows."""

    @staticmethod
    def apply(
        input_features: torch.Tensor,
        input_features_global: torch.Tensor,
        operation_type: BroadcastMode,
        in_coords_key: CoordinateMapKey,
        glob_coords_key: CoordinateMapKey,
        coords_manager: CoordinateManager,
    ) -> torch.Tensor:
        """Sum or product of each row with its sample's."""
        how = "add" if operation_type == BroadcastMode.ELEMENTWISE_ADDITON else "mul"
        samples = _samples(in_coords_key, glob_coords_key, coords_manager)
        return combine_segments(how, input_features, input_features_global, samples)


class MinkowskiBroadcastBase(MinkowskiModuleBase):
    """Sum or product of each row with its sample's.

    Args:
        operation_type: which.
    """

    def __init__(self, operation_type: BroadcastMode) -> None:
        super().__init__()
        if not isinstance(operation_type, BroadcastMode):
            _check.fail_type("operation_type", "a BroadcastMode", type(operation_type).__name__)
        self.operation_type = operation_type
        self.broadcast = MinkowskiBroadcastFunction()

    def forward(self, input: SparseTensor, input_glob: SparseTensor) -> SparseTensor:
        """Broadcast `input_glob`, one row a sample, onto `input`."""
        out = self.broadcast.apply(
            input.F,
            input_glob.F,
            self.operation_type,
            input.coordinate_map_key,
            input_glob.coordinate_map_key,
            input.coordinate_manager,
        )
        return input._like(out)

    def __repr__(self) -> str:
        return type(self).__name__


class MinkowskiBroadcastAddition(MinkowskiBroadcastBase):
    """Sum of each row and its sample's.

    Args:
        dimension: accepted; 0.4's, which networks published then still name.
    """

    def __init__(self, dimension: int = -1) -> None:
        super().__init__(BroadcastMode.ELEMENTWISE_ADDITON)


class MinkowskiBroadcastMultiplication(MinkowskiBroadcastBase):
    """Product of each row and its sample's.

    Args:
        dimension: accepted, as by `MinkowskiBroadcastAddition`.
    """

    def __init__(self, dimension: int = -1) -> None:
        super().__init__(BroadcastMode.ELEMENTWISE_MULTIPLICATION)


class MinkowskiBroadcast(MinkowskiModuleBase):
    """Each sample's row at all of its sites.

    Args:
        dimension: accepted, as by `MinkowskiBroadcastAddition`.
    """

    def __init__(self, dimension: int = -1) -> None:
        super().__init__()

    def forward(self, input: SparseTensor, input_glob: SparseTensor) -> SparseTensor:
        """Broadcast `input_glob`, one row a sample, onto the sites of `input`."""
        return input._like(self._rows(input, input_glob))

    @staticmethod
    def _rows(input: SparseTensor, input_glob: SparseTensor) -> torch.Tensor:
        key, glob_key = input.coordinate_map_key, input_glob.coordinate_map_key
        return spread_segments(input_glob.F, _samples(key, glob_key, input.coordinate_manager))

    def __repr__(self) -> str:
        return type(self).__name__


class MinkowskiBroadcastConcatenation(MinkowskiBroadcast):
    """Each row with its sample's behind."""

    def forward(self, input: SparseTensor, input_glob: SparseTensor) -> SparseTensor:
        """Join channels of `input` and the broadcast `input_glob`."""
        return input._like(torch.cat([input.F, self._rows(input, input_glob)], 1))
