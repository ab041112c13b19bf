"""Convolutions: strided, transposed, generative, onto given coordinates."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ... import _check
from ...checkpoint import to_canonical
from ...geometry import coarser, finer
from ...nn.initial import uniform_by_fan_
from ...ops.conv import conv
from ...ops.rows import affine_rows
from ...ops.segment import take_rows
from ._backend._C import ConvolutionMode, CoordinateMapKey, RegionType
from .MinkowskiCommon import MinkowskiModuleBase, StrideType
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiKernelGenerator import KernelGenerator, region
from .MinkowskiSparseTensor import SparseTensor, _get_coordinate_map_key

__all__ = [
    "MinkowskiConvolution",
    "MinkowskiConvolutionBase",
    "MinkowskiConvolutionFunction",
    "MinkowskiConvolutionTranspose",
    "MinkowskiConvolutionTransposeFunction",
    "MinkowskiGenerativeConvolutionTranspose",
]

Where = torch.Tensor | CoordinateMapKey | SparseTensor | None


def tap_weights(weights: torch.Tensor, kernel: KernelGenerator) -> torch.Tensor:
    """[K, C_in, C_out] in the peer's order as [C_out, K, C_in] in the order of the kernel map."""
    shape = region(kernel)
    if shape.is_box:
        weights = take_rows(weights, shape.order().to(weights.device))
    return weights.permute(2, 0, 1)


def _apply(
    input_features: torch.Tensor,
    kernel_weights: torch.Tensor,
    kernel_generator: KernelGenerator,
    in_key: CoordinateMapKey,
    out_key: CoordinateMapKey | None,
    manager: CoordinateManager,
    transposed: bool,
    groups: int = 1,
) -> torch.Tensor:
    out_key = CoordinateMapKey(in_key.get_coordinate_size()) if out_key is None else out_key
    if not out_key.is_key_set():
        find = manager.out_key_transposed if transposed else manager.out_key
        out_key.set_key(find(in_key, kernel_generator))
    pairs = manager.pairs(in_key, out_key, kernel_generator, transposed=transposed)
    return conv(input_features, tap_weights(kernel_weights, kernel_generator), pairs, None, groups)


class MinkowskiConvolutionFunction:
    """`apply` convolves feature rows."""

    @staticmethod
    def apply(
        input_features: torch.Tensor,
        kernel_weights: torch.Tensor,
        kernel_generator: KernelGenerator,
        convolution_mode: ConvolutionMode,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        """Rows at `out_coordinate_map_key`, which is set where it was not."""
        assert coordinate_manager is not None
        return _apply(
            input_features,
            kernel_weights,
            kernel_generator,
            in_coordinate_map_key,
            out_coordinate_map_key,
            coordinate_manager,
            False,
        )


class MinkowskiConvolutionTransposeFunction:
    """`apply` convolves feature rows, transposed."""

    @staticmethod
    def apply(
        input_features: torch.Tensor,
        kernel_weights: torch.Tensor,
        kernel_generator: KernelGenerator,
        convolution_mode: ConvolutionMode,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        """Rows at `out_coordinate_map_key`, which is set where it was not."""
        assert coordinate_manager is not None
        return _apply(
            input_features,
            kernel_weights,
            kernel_generator,
            in_coordinate_map_key,
            out_coordinate_map_key,
            coordinate_manager,
            True,
        )


class MinkowskiConvolutionBase(MinkowskiModuleBase):
    """Every convolution.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: one integer, or one an axis.
        stride: likewise.
        dilation: likewise.
        bias: add a bias.
        kernel_generator: shape and step, instead of the three above.
        is_transpose: from coarse to fine.
        expand_coordinates: make every site that an input reaches.
        convolution_mode: accepted.
        dimension: spatial axes D.
    """

    checkpoint_layout = "minkowski"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        is_transpose: bool = False,
        expand_coordinates: bool = False,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = -1,
    ) -> None:
        super().__init__()
        if dimension is None or dimension < 1:
            _check.fail("dimension", "> 0", dimension)
        if kernel_generator is None:
            kernel_generator = KernelGenerator(
                kernel_size=kernel_size,
                stride=stride,
                dilation=dilation,
                expand_coordinates=expand_coordinates,
                dimension=dimension,
            )
        else:
            kernel_generator.expand_coordinates = (
                kernel_generator.expand_coordinates or expand_coordinates
            )
        self.is_transpose = is_transpose
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_generator = kernel_generator
        self.dimension = dimension
        self.use_mm = (
            kernel_generator.kernel_volume == 1 and kernel_generator.requires_strided_coordinates
        )
        shape = [in_channels, out_channels]
        if not self.use_mm:
            shape = [kernel_generator.kernel_volume, *shape]
        self.kernel = nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.empty(1, out_channels)) if bias else None
        self.convolution_mode = convolution_mode
        self.conv: Any = (
            MinkowskiConvolutionTransposeFunction()
            if is_transpose
            else MinkowskiConvolutionFunction()
        )

    def forward(self, input: SparseTensor, coordinates: Where = None) -> SparseTensor:
        """Convolve.

        Args:
            input: N rows, C_in channels.
            coordinates: where the outputs are: a tensor int32 [M, 1 + D] at the layer's output
                stride, another sparse tensor, or a key; None for the layer's own rule.

        Returns:
            M rows, C_out channels.
        """
        check_input(type(self).__name__, input, self.dimension, self.in_channels)
        if self.use_mm and coordinates is None:
            key = input.coordinate_map_key
            pairs = input._manager.sites(key).identity()
            out = conv(input.F, self.kernel.t()[:, None], pairs)
        else:
            stride = stride_after(input, self.kernel_generator, self.is_transpose)
            key = _get_coordinate_map_key(input, coordinates, stride)
            weights = self.kernel if self.kernel.ndim == 3 else self.kernel[None]
            out = self.conv.apply(
                input.F,
                weights,
                self.kernel_generator,
                self.convolution_mode,
                input.coordinate_map_key,
                key,
                input._manager,
            )
        out = affine_rows(out, shift=self.bias)
        return SparseTensor(
            out, coordinate_map_key=key, coordinate_manager=input.coordinate_manager
        )

    @property
    def kernel_size(self) -> list[int]:
        return self.kernel_generator.kernel_size

    def canonical_kernel(self) -> torch.Tensor:
        """The kernel [out, *kernel_size, in]; of a cube alone."""
        return to_canonical(self.kernel, "minkowski", self.kernel_size)

    def from_canonical(self, kernel: torch.Tensor) -> torch.Tensor:
        """A kernel [out, *kernel_size, in] as the parameter stores it."""
        axes = kernel.ndim - 2
        order = [*reversed(range(1, axes + 1)), axes + 1, 0]
        return kernel.permute(order).reshape(self.kernel.shape)

    def reset_parameters(self, is_transpose: bool = False) -> None:
        """Uniform in +-1/sqrt(n), n = channels x taps."""
        channels = self.out_channels if is_transpose else self.in_channels
        uniform_by_fan_(channels * self.kernel_generator.kernel_volume, self.kernel, self.bias)

    def __repr__(self) -> str:
        kernel = self.kernel_generator
        size = f"kernel_size={kernel.kernel_size}"
        if kernel.region_type == RegionType.CUSTOM:
            size = f"kernel_volume={kernel.kernel_volume}"
        return (
            f"{type(self).__name__}(in={self.in_channels}, out={self.out_channels}, {size}, "
            f"stride={kernel.kernel_stride}, dilation={kernel.kernel_dilation})"
        )


class MinkowskiConvolution(MinkowskiConvolutionBase):
    """Convolution; a stride makes the sites `floor(c / s)`, whatever the kernel."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        expand_coordinates: bool = False,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            bias,
            kernel_generator,
            is_transpose=False,
            expand_coordinates=expand_coordinates,
            convolution_mode=convolution_mode,
            dimension=dimension,
        )
        self.reset_parameters()


class MinkowskiConvolutionTranspose(MinkowskiConvolutionBase):
    """Transposed convolution onto the finer sites that are there, else onto all it reaches."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        expand_coordinates: bool = False,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            bias,
            kernel_generator,
            is_transpose=True,
            expand_coordinates=expand_coordinates,
            convolution_mode=convolution_mode,
            dimension=dimension,
        )
        self.reset_parameters(True)


class MinkowskiGenerativeConvolutionTranspose(MinkowskiConvolutionBase):
    """Transposed convolution onto every site that it reaches."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        bias: bool = False,
        kernel_generator: KernelGenerator | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.DEFAULT,
        dimension: int | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            dilation,
            bias,
            kernel_generator,
            is_transpose=True,
            expand_coordinates=True,
            convolution_mode=convolution_mode,
            dimension=dimension,
        )
        self.reset_parameters(True)


def stride_after(
    input: SparseTensor, kernel: KernelGenerator, transposed: bool = False
) -> list[int]:
    """The tensor stride of a layer's output."""
    move = finer if transposed else coarser
    return list(move(input.tensor_stride, kernel.kernel_stride))


def check_input(layer: str, input: Any, dimension: int, channels: int | None = None) -> None:
    """Refuse what a layer cannot take."""
    if not isinstance(input, SparseTensor):
        _check.fail_type(f"{layer}: input", "a SparseTensor", type(input).__name__)
    if dimension != input.D:
        _check.fail(f"{layer}: input", f"of {dimension} axes", input.D)
    if channels is not None:
        _check.channels(layer, channels, input.F.shape[1])
