"""`spconv.pytorch.quantization.quantized.conv`: not implemented."""

from .._int8 import Int8Layer

__all__ = ["LinearPerChannelWeight", "SparseConv"]


class SparseConv(Int8Layer):
    """An int8 layer: not here."""


class LinearPerChannelWeight(Int8Layer):
    """An int8 layer: not here."""
