"""`spconv.pytorch.pool`: maxima start from 0, as trained weights expect, and every input that
equals one takes its gradient."""

from __future__ import annotations

from typing import Any

from ....kernel_map import Coordinates, KernelMap
from ....nn import pool as _pool
from ....nn.pool import (
    SparseAvgPool,
    SparseAvgPool1d,
    SparseAvgPool2d,
    SparseAvgPool3d,
    SparseGlobalAvgPool,
    SparseGlobalMaxOrAvgPool,
    SparseGlobalMaxPool,
)
from . import functional as Fsp
from . import ops
from .core import ConvAlgo, ImplicitGemmIndiceData, IndiceData, expand_nd
from .modules import SparseModule

__all__ = [
    "ALL_POOL_LAYERS",
    "ConvAlgo",
    "Fsp",
    "ImplicitGemmIndiceData",
    "IndiceData",
    "SparseAvgPool",
    "SparseAvgPool1d",
    "SparseAvgPool2d",
    "SparseAvgPool3d",
    "SparseGlobalAvgPool",
    "SparseGlobalMaxOrAvgPool",
    "SparseGlobalMaxPool",
    "SparseMaxPool",
    "SparseMaxPool1d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseMaxPool4d",
    "SparseModule",
    "expand_nd",
    "ops",
]


class SparseMaxPool(_pool.SparseMaxPool):
    """Maximum over each window, and 0."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **(ops.AS_THE_PEER | kwargs))

    def _leave(self, pairs: KernelMap, inputs: Coordinates, outputs: Coordinates) -> IndiceData:
        return IndiceData.left(pairs, inputs, outputs, self.subm, self.algo)


class SparseMaxPool1d(SparseMaxPool, _pool.SparseMaxPool1d):
    """Maximum over each window of 1 axis, and 0."""


class SparseMaxPool2d(SparseMaxPool, _pool.SparseMaxPool2d):
    """Maximum over each window of 2 axes, and 0."""


class SparseMaxPool3d(SparseMaxPool, _pool.SparseMaxPool3d):
    """Maximum over each window of 3 axes, and 0."""


class SparseMaxPool4d(SparseMaxPool, _pool.SparseMaxPool4d):
    """Maximum over each window of 4 axes, and 0."""


ALL_POOL_LAYERS = {
    SparseMaxPool1d,
    SparseMaxPool2d,
    SparseMaxPool3d,
    SparseMaxPool4d,
    SparseAvgPool1d,
    SparseAvgPool2d,
    SparseAvgPool3d,
}
