"""Names of `spconv.core` and `spconv.pytorch.core` that user code reads."""

from __future__ import annotations

from enum import Enum

from ..tensor import IndiceData, SparseConvTensor

__all__ = ["ConvAlgo", "ImplicitGemmIndiceData", "IndiceData", "SparseConvTensor"]


class ConvAlgo(Enum):
    """spconv's algorithm names. Accepted and recorded; the backend chooses its own."""

    Native = 0
    MaskImplicitGemm = 1
    MaskSplitImplicitGemm = 2


ImplicitGemmIndiceData = IndiceData
