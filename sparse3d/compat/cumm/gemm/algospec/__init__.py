"""`cumm.gemm.algospec`."""

from . import core
from .core import GemmAlgo, ShuffleStrideType

__all__ = ["GemmAlgo", "ShuffleStrideType", "core"]
