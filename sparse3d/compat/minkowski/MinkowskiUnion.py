"""Union."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import _check
from ...ops.segment import reduce_segments
from ._backend._C import CoordinateMapKey
from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import COORDINATE_MANAGER_DIFFERENT_ERROR

__all__ = ["MinkowskiUnion", "MinkowskiUnionFunction"]


class MinkowskiUnionFunction:
    """`apply` adds feature rows over the union of their sets."""

    @staticmethod
    def apply(
        in_coords_keys: Sequence[CoordinateMapKey],
        out_coords_key: CoordinateMapKey,
        coordinate_manager: CoordinateManager,
        *in_feats: torch.Tensor,
    ) -> torch.Tensor:
        """Rows at `out_coords_key`, which is set where it was not."""
        maps = coordinate_manager.union_map(in_coords_keys, out_coords_key)
        rows = torch.cat([pair[1] for pair in maps])
        size = coordinate_manager.size(out_coords_key)
        return reduce_segments(torch.cat(in_feats), rows, size)


class MinkowskiUnion(MinkowskiModuleBase):
    """Sum over the union of the coordinates."""

    def __init__(self) -> None:
        super().__init__()
        self.union = MinkowskiUnionFunction()

    def forward(self, *inputs: SparseTensor) -> SparseTensor:
        """Add tensors of one coordinate manager."""
        if len(inputs) < 2:
            _check.fail("inputs", "at least two sparse tensors", len(inputs))
        manager = inputs[0].coordinate_manager
        if any(x.coordinate_manager is not manager for x in inputs):
            raise ValueError(COORDINATE_MANAGER_DIFFERENT_ERROR)
        key = CoordinateMapKey(inputs[0].coordinate_map_key.get_coordinate_size())
        keys = [x.coordinate_map_key for x in inputs]
        out = self.union.apply(keys, key, manager, *[x.F for x in inputs])
        return SparseTensor(out, coordinate_map_key=key, coordinate_manager=manager)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
