"""Pruning."""

from __future__ import annotations

import torch

from ... import _check
from ...ops.segment import spread_segments
from ._backend._C import CoordinateMapKey
from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor

__all__ = ["MinkowskiPruning", "MinkowskiPruningFunction"]


class MinkowskiPruningFunction:
    """`apply` keeps feature rows."""

    @staticmethod
    def apply(
        in_feat: torch.Tensor,
        mask: torch.Tensor,
        in_coords_key: CoordinateMapKey,
        out_coords_key: CoordinateMapKey | None = None,
        coords_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        """Rows where the mask is true; sets `out_coords_key`."""
        assert coords_manager is not None
        _check.same_rows("mask", len(mask), "the input", len(in_feat))
        kept = mask.to(in_feat.device).bool().nonzero()[:, 0]
        sites = coords_manager.sites(in_coords_key)
        key = coords_manager._free(
            in_coords_key.get_tensor_stride(), "pruned", coords_manager._sets
        )
        coords_manager._add(
            key,
            sites.indices[kept],
            sites.batch_size,
            off_lattice=in_coords_key in coords_manager._off_lattice,
        )
        if out_coords_key is not None:
            out_coords_key.set_key(key)
        return spread_segments(in_feat, kept)


class MinkowskiPruning(MinkowskiModuleBase):
    """Keep the rows of a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.pruning = MinkowskiPruningFunction()

    def forward(self, input: SparseTensor, mask: torch.Tensor) -> SparseTensor:
        """Keep the rows at which `mask` is true.

        Args:
            input: N rows.
            mask: bool [N].
        """
        key = CoordinateMapKey(input.coordinate_map_key.get_coordinate_size())
        manager = input.coordinate_manager
        out = self.pruning.apply(input.F, mask, input.coordinate_map_key, key, manager)
        return SparseTensor(out, coordinate_map_key=key, coordinate_manager=manager)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
