"""`SparseTensor` of torchsparse 1.4: (x, y, z, batch), multiples of the stride."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ...ops.coordinates import cells_of
from ...ops.lattice import lattice_places
from ..torchsparse.tensor import PointTensor
from ..torchsparse.tensor import SparseTensor as _SparseTensor

__all__ = ["PointTensor", "SparseTensor"]


class SparseTensor(_SparseTensor):
    """Features on sparse coordinates, torchsparse 1.4: (x, y, z, batch), multiples of the stride.

    Args:
        feats: [N, C].
        coords: int32 [N, 4].
        stride: of the coordinates.
    """

    batch_column: ClassVar[int] = 3
    contracted: ClassVar[bool] = False
    version: ClassVar[str] = "1.4"

    @classmethod
    def to_indices(cls, coords: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
        return cells_of(coords[:, [3, 0, 1, 2]], stride)

    @classmethod
    def from_indices(cls, indices: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
        return lattice_places(indices, stride)[:, [1, 2, 3, 0]]

    @staticmethod
    def _cmap(made: _SparseTensor) -> Any:
        return made.coords
