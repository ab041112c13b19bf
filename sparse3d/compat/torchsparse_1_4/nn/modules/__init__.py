"""`torchsparse.nn.modules` of version 1.4."""

from __future__ import annotations

from typing import Any

from ..... import _check
from ....torchsparse.nn.modules import (
    BatchNorm,
    GlobalAvgPool,
    GlobalMaxPool,
    GroupNorm,
    LeakyReLU,
    ReLU,
    SparseCrop,
    ToBEVConvolution,
    ToBEVHeightCompression,
    ToBEVReduction,
    ToDenseBEVConvolution,
)
from ....torchsparse.nn.modules import Conv3d as _Conv3d
from ....torchsparse.utils.utils import make_ntuple

__all__ = [
    "BatchNorm",
    "Conv3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "LeakyReLU",
    "ReLU",
    "SparseCrop",
    "ToBEVConvolution",
    "ToBEVHeightCompression",
    "ToBEVReduction",
    "ToDenseBEVConvolution",
]


class Conv3d(_Conv3d):
    """Convolution, torchsparse 1.4: there is no padding.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: one integer, or one an axis.
        stride: likewise.
        dilation: likewise.
        bias: add a bias.
        transposed: undo the strided layer of the same numbers.
        config: of 2.0; accepted.
        padding: 0, which code states that was written for 2.0 too.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        dilation: Any = 1,
        bias: bool = False,
        transposed: bool = False,
        config: Any = None,
        *,
        padding: Any = 0,
    ) -> None:
        if any(make_ntuple(padding, ndim=3)):
            way_out = "torchsparse 2.1 has padding: sparse3d.compat.install('torchsparse')"
            _check.fail("padding", "0 in version 1.4", padding, way_out)
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation=dilation,
            bias=bias,
            transposed=transposed,
        )
        if self.kernel_volume == 1 and self.kernel.ndim == 3:
            self.kernel = type(self.kernel)(self.kernel.detach()[0])
