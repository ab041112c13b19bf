"""`spconv.pytorch.quantization.intrinsic.quantized.conv_relu`: not implemented."""

from ..._int8 import Int8Layer

__all__ = ["LinearPerChannelWeightReLU", "SparseConvAddReLU", "SparseConvReLU"]


class SparseConvReLU(Int8Layer):
    """An int8 layer: not here."""


class SparseConvAddReLU(Int8Layer):
    """An int8 layer: not here."""


class LinearPerChannelWeightReLU(Int8Layer):
    """An int8 layer: not here."""
