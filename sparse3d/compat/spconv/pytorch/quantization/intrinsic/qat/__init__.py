"""`spconv.pytorch.quantization.intrinsic.qat`."""

from .modules import (
    SparseConv,
    SparseConvAddReLU,
    SparseConvBn,
    SparseConvBnAddReLU,
    SparseConvBnReLU,
    SparseConvReLU,
)

__all__ = [
    "SparseConv",
    "SparseConvAddReLU",
    "SparseConvBn",
    "SparseConvBnAddReLU",
    "SparseConvBnReLU",
    "SparseConvReLU",
]
