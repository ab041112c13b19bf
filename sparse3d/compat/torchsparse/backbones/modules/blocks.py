"""Blocks of the backbones."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...nn.modules import BatchNorm, Conv3d, ReLU
from ...utils.utils import make_ntuple

__all__ = ["SparseConvBlock", "SparseConvTransposeBlock", "SparseResBlock"]


class SparseConvBlock(nn.Sequential):
    """Convolution, norm, ReLU."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        dilation: Any = 1,
    ) -> None:
        super().__init__(
            Conv3d(in_channels, out_channels, kernel_size, stride=stride, dilation=dilation),
            BatchNorm(out_channels),
            ReLU(True),
        )


class SparseConvTransposeBlock(nn.Sequential):
    """Transposed convolution, norm, ReLU."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        dilation: Any = 1,
    ) -> None:
        up = Conv3d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            dilation=dilation,
            transposed=True,
        )
        super().__init__(up, BatchNorm(out_channels), ReLU(True))


class SparseResBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        dilation: Any = 1,
    ) -> None:
        super().__init__()
        self.main = nn.Sequential(
            Conv3d(in_channels, out_channels, kernel_size, stride=stride, dilation=dilation),
            BatchNorm(out_channels),
            ReLU(True),
            Conv3d(out_channels, out_channels, kernel_size, dilation=dilation),
            BatchNorm(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if in_channels != out_channels or set(make_ntuple(stride, ndim=3)) != {1}:
            self.shortcut = nn.Sequential(
                Conv3d(in_channels, out_channels, 1, stride=stride), BatchNorm(out_channels)
            )
        self.relu = ReLU(True)

    def forward(self, x: Any) -> Any:
        return self.relu(self.main(x) + self.shortcut(x))
