"""Residual blocks."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from ..MinkowskiConvolution import MinkowskiConvolution
from ..MinkowskiNonlinearity import MinkowskiReLU
from ..MinkowskiNormalization import MinkowskiBatchNorm
from ..MinkowskiSparseTensor import SparseTensor

__all__ = ["BasicBlock", "Bottleneck"]


class BasicBlock(nn.Module):
    """Two 3-tap convolutions and a shortcut."""

    expansion: ClassVar[int] = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        bn_momentum: float = 0.1,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        shape: dict[str, Any] = {"kernel_size": 3, "dilation": dilation, "dimension": dimension}
        self.conv1 = MinkowskiConvolution(inplanes, planes, stride=stride, **shape)
        self.norm1 = MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv2 = MinkowskiConvolution(planes, planes, stride=1, **shape)
        self.norm2 = MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.relu = MinkowskiReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: SparseTensor) -> SparseTensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self._last(self.norm2(self.conv2(out)))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)  # type: ignore[no-any-return]

    def _last(self, out: SparseTensor) -> SparseTensor:
        return out


class Bottleneck(nn.Module):
    """1-tap, 3-tap and 1-tap convolutions and a shortcut."""

    expansion: ClassVar[int] = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        bn_momentum: float = 0.1,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        wide = planes * self.expansion
        self.conv1 = MinkowskiConvolution(inplanes, planes, kernel_size=1, dimension=dimension)
        self.norm1 = MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv2 = MinkowskiConvolution(
            planes, planes, kernel_size=3, stride=stride, dilation=dilation, dimension=dimension
        )
        self.norm2 = MinkowskiBatchNorm(planes, momentum=bn_momentum)
        self.conv3 = MinkowskiConvolution(planes, wide, kernel_size=1, dimension=dimension)
        self.norm3 = MinkowskiBatchNorm(wide, momentum=bn_momentum)
        self.relu = MinkowskiReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: SparseTensor) -> SparseTensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)))
        out = self._last(self.norm3(self.conv3(out)))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)  # type: ignore[no-any-return]

    def _last(self, out: SparseTensor) -> SparseTensor:
        return out
