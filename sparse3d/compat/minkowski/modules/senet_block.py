"""Residual blocks with squeeze and excitation."""

from __future__ import annotations

from torch import nn

from ..MinkowskiBroadcast import MinkowskiBroadcastMultiplication
from ..MinkowskiNonlinearity import MinkowskiReLU, MinkowskiSigmoid
from ..MinkowskiOps import MinkowskiLinear
from ..MinkowskiPooling import MinkowskiGlobalPooling
from ..MinkowskiSparseTensor import SparseTensor
from .resnet_block import BasicBlock, Bottleneck

__all__ = ["SEBasicBlock", "SEBottleneck", "SELayer"]


class SELayer(nn.Module):
    """Scale each channel by a function of its mean over the sample.

    Args:
        channel: C.
        reduction: inner width is C / reduction.
        D: accepted for the peer's signature.
    """

    def __init__(self, channel: int, reduction: int = 16, D: int = -1) -> None:
        super().__init__()
        self.fc = nn.Sequential(
            MinkowskiLinear(channel, channel // reduction),
            MinkowskiReLU(inplace=True),
            MinkowskiLinear(channel // reduction, channel),
            MinkowskiSigmoid(),
        )
        self.pooling = MinkowskiGlobalPooling()
        self.broadcast_mul = MinkowskiBroadcastMultiplication()

    def forward(self, x: SparseTensor) -> SparseTensor:
        scale: SparseTensor = self.fc(self.pooling(x))
        out: SparseTensor = self.broadcast_mul(x, scale)
        return out


class SEBasicBlock(BasicBlock):
    """`BasicBlock` with an `SELayer` before the shortcut."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        reduction: int = 16,
        D: int = -1,
    ) -> None:
        super().__init__(inplanes, planes, stride, dilation, downsample, dimension=D)
        self.se = SELayer(planes, reduction=reduction, D=D)

    def _last(self, out: SparseTensor) -> SparseTensor:
        return self.se(out)  # type: ignore[no-any-return]


class SEBottleneck(Bottleneck):
    """`Bottleneck` with an `SELayer` before the shortcut."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        D: int = 3,
        reduction: int = 16,
    ) -> None:
        super().__init__(inplanes, planes, stride, dilation, downsample, dimension=D)
        self.se = SELayer(planes * self.expansion, reduction=reduction, D=D)

    def _last(self, out: SparseTensor) -> SparseTensor:
        return self.se(out)  # type: ignore[no-any-return]
