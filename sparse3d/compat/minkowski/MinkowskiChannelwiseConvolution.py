"""Depthwise convolution."""

from __future__ import annotations

import torch
from torch import nn

from ... import _check
from ...nn.initial import uniform_by_fan_
from ...ops.conv import conv
from ...ops.rows import affine_rows
from .MinkowskiCommon import MinkowskiModuleBase, StrideType
from .MinkowskiConvolution import Where, check_input, stride_after, tap_weights
from .MinkowskiKernelGenerator import KernelGenerator
from .MinkowskiSparseTensor import SparseTensor, _get_coordinate_map_key

__all__ = ["MinkowskiChannelwiseConvolution"]


class MinkowskiChannelwiseConvolution(MinkowskiModuleBase):
    """Each channel with a kernel of its own.

    Args:
        in_channels: C.
        kernel_size: one integer, or one an axis.
        stride: likewise.
        dilation: likewise.
        bias: add a bias.
        kernel_generator: shape and step, instead of the three above.
        dimension: spatial axes D.
    """

    def __init__(
        self,
        in_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        _check.positive("dimension", dimension)
        if kernel_generator is None:
            kernel_generator = KernelGenerator(
                kernel_size=kernel_size, stride=stride, dilation=dilation, dimension=dimension
            )
        self.kernel_generator = kernel_generator
        self.in_channels = in_channels
        self.dimension = dimension
        self.kernel_shape = (kernel_generator.kernel_volume, in_channels)
        self.kernel = nn.Parameter(torch.empty(self.kernel_shape))
        self.bias = nn.Parameter(torch.empty(1, in_channels)) if bias else None
        self.reset_parameters()

    def forward(self, input: SparseTensor, coords: Where = None) -> SparseTensor:
        """Convolve; `coords` as `coordinates` of `MinkowskiConvolution`."""
        check_input(type(self).__name__, input, self.dimension, self.in_channels)
        manager, in_key = input.coordinate_manager, input.coordinate_map_key
        key = _get_coordinate_map_key(input, coords, stride_after(input, self.kernel_generator))
        if not key.is_key_set():
            key = manager.out_key(in_key, self.kernel_generator)
        pairs = manager.pairs(in_key, key, self.kernel_generator)
        weights = tap_weights(self.kernel[:, None], self.kernel_generator)
        out = conv(input.F, weights, pairs, None, self.in_channels)
        out = affine_rows(out, shift=self.bias)
        return SparseTensor(out, coordinate_map_key=key, coordinate_manager=manager)

    def reset_parameters(self, is_transpose: bool = False) -> None:
        """Uniform in +-1/sqrt(channels x taps)."""
        fan = self.in_channels * self.kernel_generator.kernel_volume
        uniform_by_fan_(fan, self.kernel, self.bias)

    def __repr__(self) -> str:
        kernel = self.kernel_generator
        return (
            f"{type(self).__name__}(in={self.in_channels}, kernel_size={kernel.kernel_size}, "
            f"stride={kernel.kernel_stride}, dilation={kernel.kernel_dilation})"
        )
