"""`spconv.pytorch.quantization.quantized.reference`: not implemented."""

from .._int8 import Int8Layer

__all__ = ["SpConv"]


class SpConv(Int8Layer):
    """A float layer with quantised weights: not here."""
