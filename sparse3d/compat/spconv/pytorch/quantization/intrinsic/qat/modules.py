"""`spconv.pytorch.quantization.intrinsic.qat.modules`: not implemented."""

from ..._int8 import Int8Layer

__all__ = [
    "SparseConv",
    "SparseConvAddReLU",
    "SparseConvBn",
    "SparseConvBnAddReLU",
    "SparseConvBnReLU",
    "SparseConvReLU",
]


class SparseConv(Int8Layer):
    """Trained with fake quantisation: not here."""


class SparseConvReLU(Int8Layer):
    """Trained with fake quantisation: not here."""


class SparseConvAddReLU(Int8Layer):
    """Trained with fake quantisation: not here."""


class SparseConvBn(Int8Layer):
    """Trained with fake quantisation: not here."""


class SparseConvBnReLU(Int8Layer):
    """Trained with fake quantisation: not here."""


class SparseConvBnAddReLU(Int8Layer):
    """Trained with fake quantisation: not here."""
