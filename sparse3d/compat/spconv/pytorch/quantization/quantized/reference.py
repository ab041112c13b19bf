"""`spconv.pytorch.quantization.quantized.reference`."""

from ......nn import fake_quant
from ...conv import SparseConvolution

__all__ = ["SpConv"]


class SpConv(fake_quant.SpConv, SparseConvolution):
    """`sparse3d.nn.fake_quant.SpConv`."""
