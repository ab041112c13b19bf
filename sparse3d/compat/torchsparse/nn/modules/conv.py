"""The convolution layer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from ..... import _check
from .....checkpoint import to_canonical
from .....geometry import Geometry
from .....nn.initial import uniform_by_fan_
from ...utils.utils import make_ntuple
from ..functional._maps import centred
from ..functional.conv import conv3d

__all__ = ["Conv3d"]


class Conv3d(nn.Module):
    """Convolution, torchsparse 2.x.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: one integer, or one an axis.
        stride: likewise; 1 keeps the sites, for even kernels too.
        padding: likewise; odd axes of stride 1 are centred instead.
        dilation: likewise.
        bias: add a bias.
        transposed: undo the strided layer of the same numbers.
        generative: make every finer site that an input reaches; needs `transposed`.
        config: the peer's configuration.
        parity: repeat the peer's faults, see `functional.conv3d`.
    """

    bias: nn.Parameter | None
    checkpoint_layout = "torchsparse"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        bias: bool = False,
        transposed: bool = False,
        generative: bool = False,
        config: Any = None,
        *,
        parity: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = make_ntuple(kernel_size, ndim=3)
        self.stride = make_ntuple(stride, ndim=3)
        self.dilation = dilation
        shifts, spreads = make_ntuple(padding, ndim=3), make_ntuple(dilation, ndim=3)
        self.padding = centred(self.kernel_size, self.stride, shifts, spreads)
        Geometry(self.kernel_size, self.stride, self.padding, spreads)  # refuses zeros
        self.transposed = transposed
        self.generative = generative
        if generative and not transposed:
            _check.fail("generative", "False where transposed is False", True)
        self._config = config
        self.parity = parity
        self.kernel_volume = math.prod(self.kernel_size)
        shape = [in_channels, out_channels]
        if self.kernel_volume > 1 or self.stride != (1, 1, 1):
            shape = [self.kernel_volume, *shape]
        self.kernel = nn.Parameter(torch.zeros(shape))
        self.register_parameter("bias", nn.Parameter(torch.zeros(out_channels)) if bias else None)
        self.reset_parameters()

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        if self.stride != (1, 1, 1):
            text += f", stride={self.stride}"
        if self.dilation != 1:
            text += f", dilation={self.dilation}"
        if self.bias is None:
            text += ", bias=False"
        return text + (", transposed=True" if self.transposed else "")

    def canonical_kernel(self) -> torch.Tensor:
        """The kernel [out, x, y, z, in]."""
        return to_canonical(self.kernel, "torchsparse", self.kernel_size)

    def from_canonical(self, kernel: torch.Tensor) -> torch.Tensor:
        """A kernel [out, x, y, z, in] as the parameter stores it."""
        even = self.kernel_volume % 2 == 0
        order = (1, 2, 3, 4, 0) if even else (3, 2, 1, 4, 0)
        return kernel.permute(order).reshape(self.kernel.shape)

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(channels x taps)."""
        channels = self.out_channels if self.transposed else self.in_channels
        uniform_by_fan_(channels * self.kernel_volume, self.kernel, self.bias)

    def forward(self, input: Any) -> Any:
        """Convolve."""
        return conv3d(
            input,
            self.kernel,
            kernel_size=self.kernel_size,
            bias=self.bias,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            config=self._config,
            transposed=self.transposed,
            generative=self.generative,
            training=self.training,
            parity=self.parity,
        )
