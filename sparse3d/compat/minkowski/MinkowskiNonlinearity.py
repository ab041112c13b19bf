"""Nonlinearities: torch's, on the features; each keeps torch's module as `module`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from ...ops.linear import sinusoidal
from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiTensor import Tensor

__all__ = [
    "MinkowskiAdaptiveLogSoftmaxWithLoss",
    "MinkowskiAlphaDropout",
    "MinkowskiCELU",
    "MinkowskiDropout",
    "MinkowskiELU",
    "MinkowskiGELU",
    "MinkowskiHardshrink",
    "MinkowskiHardsigmoid",
    "MinkowskiHardswish",
    "MinkowskiHardtanh",
    "MinkowskiLeakyReLU",
    "MinkowskiLogSigmoid",
    "MinkowskiLogSoftmax",
    "MinkowskiNonlinearityBase",
    "MinkowskiPReLU",
    "MinkowskiRReLU",
    "MinkowskiReLU",
    "MinkowskiReLU6",
    "MinkowskiSELU",
    "MinkowskiSiLU",
    "MinkowskiSigmoid",
    "MinkowskiSinusoidal",
    "MinkowskiSoftmax",
    "MinkowskiSoftmin",
    "MinkowskiSoftplus",
    "MinkowskiSoftshrink",
    "MinkowskiSoftsign",
    "MinkowskiTanh",
    "MinkowskiTanhshrink",
    "MinkowskiThreshold",
]

T = TypeVar("T", bound=Tensor)


class MinkowskiNonlinearityBase(MinkowskiModuleBase):
    """A torch module on the features."""

    MODULE: ClassVar[Callable[..., nn.Module]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.module = type(self).MODULE(*args, **kwargs)

    def forward(self, input: T) -> T:
        return input._like(self.module(input.F))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MinkowskiELU(MinkowskiNonlinearityBase):
    """`torch.nn.ELU` on the features."""

    MODULE = nn.ELU


class MinkowskiHardshrink(MinkowskiNonlinearityBase):
    """`torch.nn.Hardshrink` on the features."""

    MODULE = nn.Hardshrink


class MinkowskiHardsigmoid(MinkowskiNonlinearityBase):
    """`torch.nn.Hardsigmoid` on the features."""

    MODULE = nn.Hardsigmoid


class MinkowskiHardtanh(MinkowskiNonlinearityBase):
    """`torch.nn.Hardtanh` on the features."""

    MODULE = nn.Hardtanh


class MinkowskiHardswish(MinkowskiNonlinearityBase):
    """`torch.nn.Hardswish` on the features."""

    MODULE = nn.Hardswish


class MinkowskiLeakyReLU(MinkowskiNonlinearityBase):
    """`torch.nn.LeakyReLU` on the features."""

    MODULE = nn.LeakyReLU


class MinkowskiLogSigmoid(MinkowskiNonlinearityBase):
    """`torch.nn.LogSigmoid` on the features."""

    MODULE = nn.LogSigmoid


class MinkowskiPReLU(MinkowskiNonlinearityBase):
    """`torch.nn.PReLU` on the features."""

    MODULE = nn.PReLU


class MinkowskiReLU(MinkowskiNonlinearityBase):
    """`torch.nn.ReLU` on the features."""

    MODULE = nn.ReLU


class MinkowskiReLU6(MinkowskiNonlinearityBase):
    """`torch.nn.ReLU6` on the features."""

    MODULE = nn.ReLU6


class MinkowskiRReLU(MinkowskiNonlinearityBase):
    """`torch.nn.RReLU` on the features."""

    MODULE = nn.RReLU


class MinkowskiSELU(MinkowskiNonlinearityBase):
    """`torch.nn.SELU` on the features."""

    MODULE = nn.SELU


class MinkowskiCELU(MinkowskiNonlinearityBase):
    """`torch.nn.CELU` on the features."""

    MODULE = nn.CELU


class MinkowskiGELU(MinkowskiNonlinearityBase):
    """`torch.nn.GELU` on the features."""

    MODULE = nn.GELU


class MinkowskiSigmoid(MinkowskiNonlinearityBase):
    """`torch.nn.Sigmoid` on the features."""

    MODULE = nn.Sigmoid


class MinkowskiSiLU(MinkowskiNonlinearityBase):
    """`torch.nn.SiLU` on the features."""

    MODULE = nn.SiLU


class MinkowskiSoftplus(MinkowskiNonlinearityBase):
    """`torch.nn.Softplus` on the features."""

    MODULE = nn.Softplus


class MinkowskiSoftshrink(MinkowskiNonlinearityBase):
    """`torch.nn.Softshrink` on the features."""

    MODULE = nn.Softshrink


class MinkowskiSoftsign(MinkowskiNonlinearityBase):
    """`torch.nn.Softsign` on the features."""

    MODULE = nn.Softsign


class MinkowskiTanh(MinkowskiNonlinearityBase):
    """`torch.nn.Tanh` on the features."""

    MODULE = nn.Tanh


class MinkowskiTanhshrink(MinkowskiNonlinearityBase):
    """`torch.nn.Tanhshrink` on the features."""

    MODULE = nn.Tanhshrink


class MinkowskiThreshold(MinkowskiNonlinearityBase):
    """`torch.nn.Threshold` on the features."""

    MODULE = nn.Threshold


class MinkowskiSoftmin(MinkowskiNonlinearityBase):
    """`torch.nn.Softmin` on the features."""

    MODULE = nn.Softmin


class MinkowskiSoftmax(MinkowskiNonlinearityBase):
    """`torch.nn.Softmax` on the features."""

    MODULE = nn.Softmax


class MinkowskiLogSoftmax(MinkowskiNonlinearityBase):
    """`torch.nn.LogSoftmax` on the features."""

    MODULE = nn.LogSoftmax


class MinkowskiAdaptiveLogSoftmaxWithLoss(MinkowskiNonlinearityBase):
    """`torch.nn.AdaptiveLogSoftmaxWithLoss` on the features."""

    MODULE = nn.AdaptiveLogSoftmaxWithLoss

    def forward(self, input: Tensor, target: torch.Tensor) -> Any:  # type: ignore[override]
        """Torch's output and loss."""
        return self.module(input.F, target)


class MinkowskiDropout(MinkowskiNonlinearityBase):
    """`torch.nn.Dropout` on the features."""

    MODULE = nn.Dropout


class MinkowskiAlphaDropout(MinkowskiNonlinearityBase):
    """`torch.nn.AlphaDropout` on the features."""

    MODULE = nn.AlphaDropout


class MinkowskiSinusoidal(MinkowskiModuleBase):
    """`sin(x W + b) * coef`.

    Args:
        in_channel: C_in.
        out_channel: C_out.
    """

    def __init__(self, in_channel: int, out_channel: int) -> None:
        super().__init__()
        self.in_channel = in_channel
        self.out_channel = out_channel
        shapes = (in_channel, out_channel), (1, out_channel), (1, out_channel)
        kernel, bias, coef = (nn.init.uniform_(torch.empty(shape)) for shape in shapes)
        self.kernel, self.bias = nn.Parameter(kernel), nn.Parameter(bias)
        self.coef = nn.Parameter(coef)

    def forward(self, input: T) -> T:
        return input._like(sinusoidal(input.F, self.kernel, self.bias, self.coef))
