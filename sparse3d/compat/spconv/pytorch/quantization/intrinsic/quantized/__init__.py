"""`spconv.pytorch.quantization.intrinsic.quantized`."""

from .conv_relu import LinearPerChannelWeightReLU, SparseConvAddReLU, SparseConvReLU

__all__ = ["LinearPerChannelWeightReLU", "SparseConvAddReLU", "SparseConvReLU"]
