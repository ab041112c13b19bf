"""spconv 1.x: `spconv.SparseConvTensor`, whose features are assigned."""

from __future__ import annotations

import torch

from .pytorch.core import SparseConvTensor as _SparseConvTensor

__all__ = ["SparseConvTensor"]


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
