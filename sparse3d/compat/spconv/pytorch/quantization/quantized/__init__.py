"""`spconv.pytorch.quantization.quantized`."""

from .conv import LinearPerChannelWeight, SparseConv

__all__ = ["LinearPerChannelWeight", "SparseConv"]
