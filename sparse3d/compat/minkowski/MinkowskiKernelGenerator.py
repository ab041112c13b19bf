"""Kernel shapes: cube, cross, any list of offsets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ... import _check
from ...geometry import Geometry, box_around, cross_offsets, cube_offsets
from ._backend._C import CoordinateMapKey, RegionType
from .MinkowskiCommon import StrideType, convert_to_int_list

__all__ = [
    "KernelGenerator",
    "KernelRegion",
    "convert_region_type",
    "get_kernel_volume",
    "save_ctx",
]


def get_kernel_volume(
    region_type: RegionType,
    kernel_size: Sequence[int],
    region_offset: torch.Tensor | None,
    axis_types: Sequence[RegionType] | None,
    dimension: int,
) -> int:
    """Number of taps.

    Raises:
        ValueError: if sizes are not positive, a cross is even, or a list is empty.
    """
    if region_type == RegionType.CUSTOM:
        if region_offset is None or region_offset.ndim != 2 or region_offset.numel() == 0:
            _check.fail("region_offsets", "a non-empty [N, D] list for RegionType.CUSTOM", "none")
        if region_offset.shape[1] != dimension:
            _check.fail("region_offsets", f"of {dimension} columns", region_offset.shape[1])
        return int(region_offset.shape[0])
    if min(kernel_size) < 1:
        _check.fail("kernel_size", "> 0 on every axis", list(kernel_size))
    if region_type == RegionType.HYPER_CUBE:
        return math.prod(kernel_size)
    if any(size % 2 == 0 for size in kernel_size):
        _check.fail("kernel_size", "odd for RegionType.HYPER_CROSS", list(kernel_size))
    return len(cross_offsets(kernel_size))


def convert_region_type(
    region_type: RegionType,
    tensor_stride: StrideType,
    kernel_size: Sequence[int],
    up_stride: StrideType,
    dilation: StrideType,
    region_offset: torch.Tensor | None,
    axis_types: Sequence[RegionType] | None,
    dimension: int,
    center: bool = True,
) -> tuple[RegionType, torch.Tensor, int]:
    """Region type, offsets and number of taps, as layers hand them to a kernel map."""
    offsets = torch.empty(0, dtype=torch.int32) if region_offset is None else region_offset
    volume = get_kernel_volume(region_type, kernel_size, offsets, axis_types, dimension)
    return region_type, offsets, volume


class KernelGenerator:
    """Shape and step of a kernel.

    Args:
        kernel_size: taps an axis; ignored by RegionType.CUSTOM.
        stride: of the layer.
        dilation: of the kernel; offsets are multiplied by it and the tensor stride.
        is_transpose: accepted for the peer's signature.
        region_type: cube, cross, or a list of offsets.
        region_offsets: int32 [N, D] for RegionType.CUSTOM, in units of dilation x tensor stride.
        expand_coordinates: make every site that an input reaches.
        axis_types: must be None.
        dimension: D.

    Raises:
        ValueError: if the sizes make no kernel.
    """

    def __init__(
        self,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        is_transpose: bool = False,
        region_type: RegionType = RegionType.HYPER_CUBE,
        region_offsets: torch.Tensor | None = None,
        expand_coordinates: bool = False,
        axis_types: Sequence[RegionType] | None = None,
        dimension: int = -1,
    ) -> None:
        _check.positive("dimension", dimension)
        if axis_types is not None:
            _check.fail("axis_types", "None", axis_types, "list the offsets (RegionType.CUSTOM)")
        self.cache: dict[tuple[int, ...], Any] = {}
        self.kernel_size = convert_to_int_list(kernel_size, dimension)
        self.kernel_stride = convert_to_int_list(stride, dimension)
        self.kernel_dilation = convert_to_int_list(dilation, dimension)
        self.region_type = region_type
        none = torch.empty(0, dtype=torch.int32)
        self.region_offsets = none if region_offsets is None else region_offsets.int().cpu()
        self.axis_types = axis_types
        self.dimension = dimension
        self.kernel_volume = get_kernel_volume(
            region_type, self.kernel_size, self.region_offsets, axis_types, dimension
        )
        self.requires_strided_coordinates = set(self.kernel_stride) == {1}
        self.expand_coordinates = expand_coordinates

    def get_kernel(
        self, tensor_stride: Sequence[int], is_transpose: bool
    ) -> tuple[RegionType, torch.Tensor, int]:
        """Region type, offsets and number of taps."""
        key = tuple(tensor_stride)
        if key not in self.cache:
            self.cache[key] = convert_region_type(
                self.region_type,
                tensor_stride,
                self.kernel_size,
                1,
                self.kernel_dilation,
                self.region_offsets,
                None,
                self.dimension,
            )
        made: tuple[RegionType, torch.Tensor, int] = self.cache[key]
        return made

    def __repr__(self) -> str:
        return (
            f"KernelGenerator(kernel_size={self.kernel_size}, kernel_stride={self.kernel_stride}, "
            f"kernel_dilation={self.kernel_dilation}, region_type={self.region_type}, "
            f"expand_coordinates={self.expand_coordinates}, dimension={self.dimension})"
        )


class KernelRegion(NamedTuple):
    """The numbers of a kernel."""

    kernel_size: Sequence[int]
    kernel_stride: Sequence[int]
    kernel_dilation: Sequence[int]
    region_type: RegionType
    offset: torch.Tensor
    D: int


def save_ctx(
    ctx: Any,
    kernel_generator: KernelGenerator,
    in_coords_key: CoordinateMapKey,
    out_coords_key: CoordinateMapKey,
    coordinate_manager: Any,
) -> Any:
    """Keep a layer's arguments on an autograd context."""
    ctx.kernel_generator = kernel_generator
    ctx.in_coordinate_map_key = in_coords_key
    ctx.out_coordinate_map_key = out_coords_key
    ctx.coordinate_manager = coordinate_manager
    return ctx


class Region(NamedTuple):
    """A kernel in our terms: a box, and which of its taps (row-major) there are, in the peer's
    order; or whole cells, whose taps mean nothing."""

    geometry: Geometry
    taps: tuple[int, ...]
    is_box: bool
    as_cell: bool

    def order(self) -> torch.Tensor:
        """For each tap of the box, row-major, its number in the peer's order."""
        place = torch.empty(len(self.taps), dtype=torch.int64)
        place[torch.tensor(self.taps)] = torch.arange(len(self.taps))
        return place


def region(kernel: KernelGenerator, *, as_cell: bool = False) -> Region:
    """The box of a kernel, and its taps in the peer's order.

    The peer counts a cube's taps with the first axis fastest, centred where a size is odd, from the
    corner where it is even; a cross's centre first, then each axis: 1 to r, then -r to -1.

    Args:
        kernel: the peer's description.
        as_cell: whole cells, whatever the parity and dilation (pools whose kernel is their
            stride).
    """
    ones = [1] * kernel.dimension
    dilation = ones if as_cell else kernel.kernel_dilation
    geometry, taps = box_around(_offsets(kernel, as_cell), kernel.kernel_stride, dilation)
    return Region(geometry, taps, sorted(taps) == list(range(geometry.volume)), as_cell)


def _offsets(kernel: KernelGenerator, as_cell: bool) -> list[tuple[int, ...]]:
    if kernel.region_type == RegionType.CUSTOM:
        return [tuple(row) for row in kernel.region_offsets.tolist()]
    if kernel.region_type == RegionType.HYPER_CROSS:
        return cross_offsets(kernel.kernel_size)
    corner = [0] * kernel.dimension if as_cell else None
    return cube_offsets(kernel.kernel_size, corner, first_fastest=True)
