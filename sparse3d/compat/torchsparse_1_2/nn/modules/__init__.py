"""`torchsparse.nn.modules` before version 1.4."""

from __future__ import annotations

from typing import Any

from ....torchsparse_1_4.nn.modules import (
    BatchNorm,
    GroupNorm,
    LeakyReLU,
    ReLU,
    SparseCrop,
    ToBEVConvolution,
    ToBEVReduction,
    ToDenseBEVConvolution,
)
from ....torchsparse_1_4.nn.modules import Conv3d as _Conv3d
from ....torchsparse_1_4.nn.modules import GlobalAvgPool as GlobalAveragePooling
from ....torchsparse_1_4.nn.modules import GlobalMaxPool as GlobalMaxPooling

__all__ = [
    "BatchNorm",
    "Conv3d",
    "GlobalAveragePooling",
    "GlobalMaxPooling",
    "GroupNorm",
    "LeakyReLU",
    "ReLU",
    "SparseCrop",
    "ToBEVConvolution",
    "ToBEVReduction",
    "ToDenseBEVConvolution",
]


class Conv3d(_Conv3d):
    """Convolution; a stride makes the sites `floor(c / s)`, whatever the kernel.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: one integer, or one an axis.
        stride: likewise.
        dilation: likewise.
        bias: add a bias.
        transpose: undo the strided layer of the same numbers.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        dilation: Any = 1,
        bias: bool = False,
        transpose: bool = False,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, dilation, bias, transposed=transpose
        )
        self.t = self.transpose = transpose
