"""The coordinate manager: sets of coordinates by key, and the kernel maps between them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from ... import _check
from ...geometry import Geometry, coarser, divides, finer
from ...kernel_map import Coordinates, KernelMap
from ...ops.coordinates import cells_of, unique
from ...ops.lattice import in_cells, on_lattice
from ...ops.order import order_keys
from ...ops.voxelize import trilinear_map
from ._backend._C import (
    CoordinateMapKey,
    CoordinateMapType,
    GPUMemoryAllocatorType,
    MinkowskiAlgorithm,
    RegionType,
)
from ._backend._manager import CoordinateMapManagerCPU
from ._coordinate_sets import CoordinateSets, to_indices
from .MinkowskiCommon import StrideType, convert_to_int_list
from .MinkowskiKernelGenerator import KernelGenerator, Region, region

__all__ = [
    "CPU_COUNT",
    "CoordinateManager",
    "CoordsManager",
    "set_coordinate_map_type",
    "set_gpu_allocator",
    "set_memory_manager_backend",
]

CPU_COUNT = torch.get_num_threads()
Key = CoordinateMapKey


def set_coordinate_map_type(coordinate_map_type: CoordinateMapType) -> None:
    """Accepted: coordinates live where their tensor lives."""


def set_gpu_allocator(backend: GPUMemoryAllocatorType) -> None:
    """Accepted: torch allocates."""
    if not isinstance(backend, GPUMemoryAllocatorType):
        _check.fail_type("backend", "a GPUMemoryAllocatorType", type(backend).__name__)


def set_memory_manager_backend(backend: GPUMemoryAllocatorType) -> None:
    """The old name of `set_gpu_allocator`."""
    warnings.warn("use set_gpu_allocator", DeprecationWarning, stacklevel=2)
    set_gpu_allocator(backend)


class CoordsManager:
    """The name of versions before 0.5."""

    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DeprecationWarning("CoordsManager has been renamed: use CoordinateManager")


class CoordinateManager(CoordinateSets):
    """Sets of coordinates by (tensor stride, id).

    Args:
        D: spatial axes, 1 to 4.
        num_threads: accepted, as the next three.
        coordinate_map_type: see `num_threads`.
        allocator_type: see `num_threads`.
        minkowski_algorithm: see `num_threads`.
        upstream_arithmetic: between tensors on different coordinates, keep the left value where the
            right one is absent, as MinkowskiEngine 0.5.4 does against its documentation; by
            default an absent value is 0.
    """

    def __init__(
        self,
        D: int = 0,
        num_threads: int = -1,
        coordinate_map_type: CoordinateMapType | None = None,
        allocator_type: GPUMemoryAllocatorType | None = None,
        minkowski_algorithm: MinkowskiAlgorithm | None = None,
        *,
        upstream_arithmetic: bool = False,
    ) -> None:
        super().__init__(D)
        self.minkowski_algorithm = minkowski_algorithm or MinkowskiAlgorithm.DEFAULT
        self.upstream_arithmetic = upstream_arithmetic
        self._maps: dict[tuple[Key, Key, Region], KernelMap] = {}

    @property
    def _manager(self) -> CoordinateMapManagerCPU:
        """These sets, as the peer's compiled half would have them."""
        return CoordinateMapManagerCPU(of=self)

    def __repr__(self) -> str:
        listed = ", ".join(f"{key}: {len(sites)}" for key, sites in self._sets.items())
        return f"CoordinateManager(D={self.D}, {{{listed}}})"

    def stride_map(self, in_key: Key, stride_key: Key) -> torch.Tensor:
        """Input rows and the rows of their cells in a coarser set: int64 [2, n]."""
        if not divides(in_key.get_tensor_stride(), stride_key.get_tensor_stride()):
            _check.fail("tensor stride of the output", f"a multiple of {in_key}", stride_key)
        rows = self._rows_of_cells(self.get_coordinates(in_key), stride_key)
        kept = (rows >= 0).nonzero()[:, 0]
        return torch.stack([kept, rows[kept].long()])

    def union_map(self, in_keys: Sequence[Key], out_key: Key) -> list[torch.Tensor]:
        """Rows of each input and their rows in the union, int64 [2, n] each; sets `out_key`.

        The union's rows are in order of batch id, then first occurrence.
        """
        sets = [self.sites(key) for key in in_keys]
        stride = in_keys[0].get_tensor_stride()
        off_lattice = False
        if all(self.unit(key) == stride for key in in_keys):
            joined = torch.cat([sites.indices for sites in sets])
        else:
            joined = torch.cat([self.get_coordinates(key) for key in in_keys])
            joined, off_lattice = to_indices(joined, stride)
        first, inverse = unique(joined)
        if not out_key.is_key_set():
            out_key.set_key(self._free(stride, "merge", self._sets))
        batch_size = max(sites.batch_size for sites in sets)
        self._add(out_key, joined[first], batch_size, off_lattice=off_lattice)
        made = []
        for rows in torch.split(inverse, [len(sites) for sites in sets]):
            made.append(torch.stack([torch.arange(len(rows), device=rows.device), rows]))
        return made

    def interpolation_map_weight(
        self, key: Key, samples: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Input rows, sample rows and weights of a linear interpolation; absent corners are left
        out."""
        rows, weights = self.corners(key, samples)
        sample, corner = (rows >= 0).nonzero(as_tuple=True)
        return rows[sample, corner].long(), sample, weights[sample, corner]

    def corners(self, key: Key, samples: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Row (-1: absent) and weight of the 2^D corners of each sample."""
        sites, kept = self.level(key)
        rows, weights = trilinear_map(sites.indices, sites.table(), self.in_units(key, samples))
        if kept is not None:
            rows = torch.where(rows >= 0, kept[rows.long()].to(rows.dtype), rows)
        return rows, weights

    def level(self, key: Key) -> tuple[Coordinates, torch.Tensor | None]:
        """A set in index space of its level, and which rows it has (None: all): those at multiples
        of the tensor stride, which alone are corners of an interpolation."""
        if key not in self._off_lattice:
            return self.sites(key), None
        absolute = self.get_coordinates(key)
        kept = on_lattice(absolute, key.get_tensor_stride()).nonzero()[:, 0]
        cells = cells_of(absolute[kept], key.get_tensor_stride())
        return Coordinates(cells, None, self.sites(key).batch_size), kept

    def in_units(self, key: Key, samples: torch.Tensor) -> torch.Tensor:
        """Samples [Q, 1 + D] in index space of a set's level."""
        return in_cells(samples, key.get_tensor_stride())

    def kernel_map(
        self,
        in_key: Key | StrideType,
        out_key: Key | StrideType,
        stride: StrideType = 1,
        kernel_size: StrideType = 3,
        dilation: StrideType = 1,
        region_type: RegionType = RegionType.HYPER_CUBE,
        region_offset: torch.Tensor | None = None,
        is_transpose: bool = False,
        is_pool: bool = False,
    ) -> dict[int, torch.Tensor]:
        """Tap number -> int32 [2, n] of input and output rows; taps without pairs are left out.

        A pool whose kernel is its stride pools cells: all its pairs are tap 0's.
        """
        region_type = RegionType(region_type)
        if set(convert_to_int_list(kernel_size, self.D)) == {1}:
            region_type = RegionType.HYPER_CUBE
        custom = region_type == RegionType.CUSTOM
        kernel = KernelGenerator(
            kernel_size,
            stride,
            dilation,
            region_type=region_type,
            region_offsets=region_offset if custom else None,
            dimension=self.D,
        )
        as_cell = is_pool and kernel.kernel_size == kernel.kernel_stride
        found = self.pairs(
            self._get_coordinate_map_key(in_key),
            self._get_coordinate_map_key(out_key),
            kernel,
            transposed=is_transpose,
            as_cell=as_cell,
            in_order=True,
        )
        taps = [torch.stack(found.tap(tap)) for tap in range(found.num_taps)]
        if as_cell:
            cells = torch.cat(taps, 1)
            taps = [cells[:, order_keys(cells[int(is_transpose)])]]
        return {tap: rows for tap, rows in enumerate(taps) if rows.shape[1]}

    get_kernel_map = kernel_map

    def pairs(
        self,
        in_key: Key,
        out_key: Key,
        kernel: KernelGenerator,
        *,
        transposed: bool = False,
        as_cell: bool = False,
        in_order: bool = False,
    ) -> KernelMap:
        """The kernel map between two sets, kept.

        Args:
            in_key: of the inputs.
            out_key: of the outputs.
            kernel: the peer's description.
            transposed: the kernel leads from the outputs to the inputs.
            as_cell: see `region`.
            in_order: taps in the peer's order (else a box's are row-major).
        """
        shape = region(kernel, as_cell=as_cell)
        fine, coarse = (out_key, in_key) if transposed else (in_key, out_key)
        if (fine, coarse, shape) not in self._maps:
            self._maps[fine, coarse, shape] = self._build(fine, coarse, shape)
        found = self._maps[fine, coarse, shape]
        if as_cell and {fine, coarse} & self._off_lattice:
            return found.transposed() if transposed else found
        if not shape.is_box or (in_order and shape.taps != tuple(range(len(shape.taps)))):
            chosen = (fine, coarse, shape._replace(is_box=not shape.is_box))
            if chosen not in self._maps:
                self._maps[chosen] = found.select(shape.taps)
            found = self._maps[chosen]
        return found.transposed() if transposed else found

    def _build(self, fine: Key, coarse: Key, shape: Region) -> KernelMap:
        source, target, geometry = self.sites(fine), self.sites(coarse), shape.geometry
        strides = fine.get_tensor_stride(), coarse.get_tensor_stride()
        if {fine, coarse} & self._off_lattice:
            if shape.as_cell:
                geometry = geometry.whole_cell(fine.get_tensor_stride())
                return self.absolute(fine).given(self.absolute(coarse), geometry)
            return self._build_absolute(fine, coarse, geometry)
        if fine == coarse:
            geometry = geometry.with_stride((1,) * self.D)
            if geometry.is_submanifold:
                return source.submanifold(geometry.kernel_size, geometry.dilation)
            return source.given(target, geometry)
        if 0 not in strides[1] and divides(*strides):
            return source.given(target, geometry.with_stride(finer(strides[1], strides[0])))
        return self._build_absolute(fine, coarse, geometry)

    def _build_absolute(self, fine: Key, coarse: Key, geometry: Geometry) -> KernelMap:
        """Where index space will not do: in the peer's absolute coordinates."""
        if 0 in fine.get_tensor_stride():
            _check.fail("tensor stride of the finer set", "> 0 on every axis", fine)
        return self.absolute(fine).given(
            self.absolute(coarse), geometry.scaled(fine.get_tensor_stride())
        )

    # ------------------------------------------------------------------------ output keys

    def out_key(self, in_key: Key, kernel: KernelGenerator) -> Key:
        """The key of a layer's outputs, made if need be: strided, or with every site reached."""
        if not kernel.expand_coordinates:
            if kernel.requires_strided_coordinates:
                return in_key
            return self.stride(in_key, kernel.kernel_stride)
        shape = region(kernel)
        old = in_key.get_tensor_stride()
        stride = coarser(old, kernel.kernel_stride)
        # The peer adds the offsets to the inputs to find sites, and takes them off to find pairs.
        source, geometry = self.sites(in_key), shape.geometry.mirrored()
        if in_key in self._off_lattice:
            geometry = geometry.scaled(old).with_stride(stride)
        _, indices = source.reached(geometry, geometry.mirror_taps(shape.taps))
        key = self._free(stride, "", self._sets)
        self._add(key, indices, source.batch_size)
        return key

    def out_key_transposed(self, in_key: Key, kernel: KernelGenerator) -> Key:
        """The key of a transposed layer's outputs: the finer set that is there, or every site
        reached."""
        steps = kernel.kernel_stride
        old = in_key.get_tensor_stride()
        if not divides(steps, old):
            _check.fail("stride", f"a divisor of the tensor stride {old}", steps)
        stride = finer(old, steps)
        key = CoordinateMapKey(stride, "")
        if key in self._sets and not kernel.expand_coordinates:
            return key
        key = self._free(stride, "", self._sets)
        source, shape, geometry = self.sites(in_key), region(kernel), region(kernel).geometry
        off_lattice = in_key in self._off_lattice
        if off_lattice:
            geometry = geometry.scaled(stride)
        found, indices = source.reached(geometry, shape.taps, transposed=True)
        if found is not None and not off_lattice:
            self._maps[key, in_key, shape] = found.transposed()
        self._add(key, indices, source.batch_size, off_lattice=off_lattice)
        return key
