"""`spconv.pytorch.quantization.quantized.conv`: not implemented."""

from ......nn.int8 import LinearPerChannelWeight, SparseConv

__all__ = ["LinearPerChannelWeight", "SparseConv"]
