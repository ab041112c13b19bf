"""`spconv.pytorch.quantization.intrinsic.qat.modules`: convolutions whose kernels are rounded."""

from .......nn import fake_quant
from ....conv import SparseConvolution

__all__ = [
    "SparseConv",
    "SparseConvAddReLU",
    "SparseConvBn",
    "SparseConvBnAddReLU",
    "SparseConvBnReLU",
    "SparseConvReLU",
]


class SparseConv(fake_quant.SparseConv, SparseConvolution):
    """`sparse3d.nn.fake_quant.SparseConv`."""

    float_kind = SparseConvolution


class SparseConvReLU(fake_quant.SparseConvReLU, SparseConv):
    """`sparse3d.nn.fake_quant.SparseConvReLU`."""


class SparseConvAddReLU(fake_quant.SparseConvAddReLU, SparseConv):
    """`sparse3d.nn.fake_quant.SparseConvAddReLU`."""


class SparseConvBn(fake_quant.SparseConvBn, SparseConv):
    """`sparse3d.nn.fake_quant.SparseConvBn`."""


class SparseConvBnReLU(fake_quant.SparseConvBnReLU, SparseConv):
    """`sparse3d.nn.fake_quant.SparseConvBnReLU`."""


class SparseConvBnAddReLU(fake_quant.SparseConvBnAddReLU, SparseConv):
    """`sparse3d.nn.fake_quant.SparseConvBnAddReLU`."""
