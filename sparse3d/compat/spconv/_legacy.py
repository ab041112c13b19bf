"""spconv 1.x: `spconv.SparseConvTensor`, whose features are assigned, and layers that take its
arguments."""

from __future__ import annotations

from typing import Any

import torch

from . import pytorch
from .pytorch.core import SparseConvTensor as _SparseConvTensor

__all__ = [
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTensor",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
]


class SparseConvTensor(_SparseConvTensor):
    """The tensor of `import spconv`: 1.x code assigns `.features`."""

    @property
    def features(self) -> torch.Tensor:
        return self._features

    @features.setter
    def features(self, value: torch.Tensor) -> None:
        self._features = value

    @property
    def sparity(self) -> float:
        """Share of active cells (1.x spells it so)."""
        return len(self) / (self.spatial_size * self.batch_size)


class _Layer:
    """Accepts `use_hash`, which chose among 1.x's map builders."""

    def __init__(self, *args: Any, use_hash: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class SparseConv2d(_Layer, pytorch.SparseConv2d):
    """As `spconv.pytorch`'s."""


class SparseConv3d(_Layer, pytorch.SparseConv3d):
    """As `spconv.pytorch`'s."""


class SparseConv4d(_Layer, pytorch.SparseConv4d):
    """As `spconv.pytorch`'s."""


class SparseConvTranspose2d(_Layer, pytorch.SparseConvTranspose2d):
    """As `spconv.pytorch`'s."""


class SparseConvTranspose3d(_Layer, pytorch.SparseConvTranspose3d):
    """As `spconv.pytorch`'s."""


class SubMConv2d(_Layer, pytorch.SubMConv2d):
    """As `spconv.pytorch`'s."""


class SubMConv3d(_Layer, pytorch.SubMConv3d):
    """As `spconv.pytorch`'s."""


class SubMConv4d(_Layer, pytorch.SubMConv4d):
    """As `spconv.pytorch`'s."""
