"""The stand-in's classes, as what rounds and observes them asks for."""

from __future__ import annotations

from typing import Any

from ..conv import DEFAULT_SPARSE_CONV_TYPES, SparseConvolution
from ..pool import ALL_POOL_LAYERS
from .intrinsic import qat
from .quantized.reference import SpConv

__all__ = ["layers"]


def layers() -> Any:
    """Made at the first call, as torch's configuration takes a while to import."""
    from .....nn._int8_config import Layers

    return Layers(
        (*DEFAULT_SPARSE_CONV_TYPES, SparseConvolution),
        tuple(ALL_POOL_LAYERS),
        SpConv,
        qat.SparseConv,
        qat.SparseConvReLU,
        qat.SparseConvAddReLU,
        qat.SparseConvBn,
        qat.SparseConvBnReLU,
        qat.SparseConvBnAddReLU,
    )
