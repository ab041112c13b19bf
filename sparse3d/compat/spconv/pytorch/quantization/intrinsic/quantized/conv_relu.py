"""`spconv.pytorch.quantization.intrinsic.quantized.conv_relu`: not implemented."""

from .......nn.int8 import LinearPerChannelWeightReLU, SparseConvAddReLU, SparseConvReLU

__all__ = ["LinearPerChannelWeightReLU", "SparseConvAddReLU", "SparseConvReLU"]
