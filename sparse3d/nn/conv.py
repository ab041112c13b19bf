"""The public convolutions over 1 to 4 axes, with spconv's names and argument orders."""

from __future__ import annotations

from typing import ClassVar

from ._convolution import (
    FILTER_HWIO,
    Size,
    SparseConvolution,
    SparseConvolutionBase,
)
from .core import ConvAlgo

__all__ = [
    "DEFAULT_SPARSE_CONV_TYPES",
    "FILTER_HWIO",
    "SparseConv1d",
    "SparseConv2d",
    "SparseConv3d",
    "SparseConv4d",
    "SparseConvTranspose1d",
    "SparseConvTranspose2d",
    "SparseConvTranspose3d",
    "SparseConvTranspose4d",
    "SparseConvolution",
    "SparseConvolutionBase",
    "SparseInverseConv1d",
    "SparseInverseConv2d",
    "SparseInverseConv3d",
    "SparseInverseConv4d",
    "SubMConv1d",
    "SubMConv2d",
    "SubMConv3d",
    "SubMConv4d",
]


class _SparseConv(SparseConvolution):
    axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        record_voxel_count: bool = False,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
        *,
        rule: str = "footprint",
    ) -> None:
        super().__init__(
            self.axes,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            record_voxel_count=record_voxel_count,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
            rule=rule,
        )


class _SparseConvTranspose(SparseConvolution):
    axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        record_voxel_count: bool = False,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
        *,
        output_padding: Size = 0,
    ) -> None:
        super().__init__(
            self.axes,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            output_padding=output_padding,
            transposed=True,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            record_voxel_count=record_voxel_count,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )


class _SubMConv(SparseConvolution):
    axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            self.axes,
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            subm=True,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )


class _SparseInverseConv(SparseConvolution):
    axes: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        indice_key: str | None,
        bias: bool = True,
        algo: ConvAlgo | None = None,
        fp32_accum: bool | None = None,
        large_kernel_fast_algo: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(
            self.axes,
            in_channels,
            out_channels,
            kernel_size,
            bias=bias,
            inverse=True,
            indice_key=indice_key,
            algo=algo,
            fp32_accum=fp32_accum,
            large_kernel_fast_algo=large_kernel_fast_algo,
            name=name,
        )


class SparseConv1d(_SparseConv):
    """Sparse convolution over 1 axis: makes every site that an input reaches."""

    axes = 1


class SparseConv2d(_SparseConv):
    """Sparse convolution over 2 axes: makes every site that an input reaches."""

    axes = 2


class SparseConv3d(_SparseConv):
    """Sparse convolution over 3 axes: makes every site that an input reaches."""

    axes = 3


class SparseConv4d(_SparseConv):
    """Sparse convolution over 4 axes: makes every site that an input reaches."""

    axes = 4


class SparseConvTranspose1d(_SparseConvTranspose):
    """Transposed convolution over 1 axis: makes every fine site that an input reaches."""

    axes = 1


class SparseConvTranspose2d(_SparseConvTranspose):
    """Transposed convolution over 2 axes: makes every fine site that an input reaches."""

    axes = 2


class SparseConvTranspose3d(_SparseConvTranspose):
    """Transposed convolution over 3 axes: makes every fine site that an input reaches."""

    axes = 3


class SparseConvTranspose4d(_SparseConvTranspose):
    """Transposed convolution over 4 axes: makes every fine site that an input reaches."""

    axes = 4


class SubMConv1d(_SubMConv):
    """Submanifold convolution over 1 axis: outputs are the inputs; `padding` is accepted,
    unused."""

    axes = 1


class SubMConv2d(_SubMConv):
    """Submanifold convolution over 2 axes: outputs are the inputs; `padding` is accepted,
    unused."""

    axes = 2


class SubMConv3d(_SubMConv):
    """Submanifold convolution over 3 axes: outputs are the inputs; `padding` is accepted,
    unused."""

    axes = 3


class SubMConv4d(_SubMConv):
    """Submanifold convolution over 4 axes: outputs are the inputs; `padding` is accepted,
    unused."""

    axes = 4


class SparseInverseConv1d(_SparseInverseConv):
    """Undoes the strided layer or pool of `indice_key` over 1 axis: its input sites, in their
    order."""

    axes = 1


class SparseInverseConv2d(_SparseInverseConv):
    """Undoes the strided layer or pool of `indice_key` over 2 axes: its input sites, in their
    order."""

    axes = 2


class SparseInverseConv3d(_SparseInverseConv):
    """Undoes the strided layer or pool of `indice_key` over 3 axes: its input sites, in their
    order."""

    axes = 3


class SparseInverseConv4d(_SparseInverseConv):
    """Undoes the strided layer or pool of `indice_key` over 4 axes: its input sites, in their
    order."""

    axes = 4


DEFAULT_SPARSE_CONV_TYPES = {
    kind
    for family in (_SparseConv, _SparseConvTranspose, _SubMConv, _SparseInverseConv)
    for kind in family.__subclasses__()
}
