"""The coordinate manager: sets of coordinates by key, and the kernel maps between them.

A set is kept in index space of its level (coordinates divided by the tensor stride); the peer's
absolute coordinates are made on request.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from ... import _check
from ...geometry import Geometry
from ...kernel_map import Coordinates, KernelMap
from ...ops.coordinates import lookup, unique
from ...ops.voxelize import trilinear_map
from ._backend._C import (
    CoordinateMapKey,
    CoordinateMapType,
    GPUMemoryAllocatorType,
    MinkowskiAlgorithm,
    RegionType,
)
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


class CoordinateManager:
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
        if not 1 <= D <= 4:
            _check.fail("D", "1 to 4", D)
        self.D = D
        self.minkowski_algorithm = minkowski_algorithm or MinkowskiAlgorithm.DEFAULT
        self.upstream_arithmetic = upstream_arithmetic
        self._sets: dict[Key, Coordinates] = {}
        self._absolute: dict[Key, torch.Tensor] = {}
        self._fields: dict[Key, torch.Tensor] = {}
        self._from_fields: dict[tuple[Key, Key], tuple[torch.Tensor, torch.Tensor]] = {}
        self._maps: dict[tuple[Key, Key, Region], KernelMap] = {}
        self._count = 0

    @property
    def _manager(self) -> CoordinateManager:
        return self

    def __repr__(self) -> str:
        listed = ", ".join(f"{key}: {len(sites)}" for key, sites in self._sets.items())
        return f"CoordinateManager(D={self.D}, {{{listed}}})"

    # ------------------------------------------------------------------------------- sets

    def exists(self, key: Key) -> bool:
        """Whether a set has this key."""
        return key in self._sets

    def sites(self, key: Key) -> Coordinates:
        """The set of a key, in index space of its level."""
        if key not in self._sets:
            _check.fail("coordinate map key", f"one of {list(self._sets)}", key)
        return self._sets[key]

    def _free(self, stride: Sequence[int], string_id: str, taken: dict[Key, Any]) -> Key:
        """A key of this stride and id, or of a new id if that is taken."""
        key = CoordinateMapKey(list(stride), string_id)
        while key in taken:
            self._count += 1
            key = CoordinateMapKey(list(stride), f"{string_id}-{self._count}")
        return key

    def _add(self, key: Key, indices: torch.Tensor, batch_size: int | None = None) -> Coordinates:
        if batch_size is None:
            batch_size = int(indices[:, 0].max()) + 1 if len(indices) else 1
        sites = Coordinates(indices, None, batch_size)
        sites.trust_distinct()
        self._sets[key] = sites
        return sites

    def _contract(self, coordinates: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
        if set(stride) == {1}:
            return coordinates
        cells = torch.div(
            coordinates[:, 1:], coordinates.new_tensor(list(stride)), rounding_mode="floor"
        )
        return torch.cat([coordinates[:, :1], cells], 1)

    def insert_and_map(
        self, coordinates: torch.Tensor, tensor_stride: StrideType = 1, string_id: str = ""
    ) -> tuple[Key, tuple[torch.Tensor, torch.Tensor]]:
        """Add a set: distinct rows in order of first occurrence.

        Args:
            coordinates: int32 [N, 1 + D], multiples of the tensor stride.
            tensor_stride: of the set.
            string_id: of the key; another is made if it is taken.

        Returns:
            The key, and `(unique_map, inverse_map)` with `coordinates[unique_map][inverse_map] ==
            coordinates`.
        """
        _check.coordinates("coordinates", coordinates)
        if coordinates.shape[1] != self.D + 1:
            _check.fail("coordinates", f"of {self.D + 1} columns", coordinates.shape[1])
        stride = convert_to_int_list(tensor_stride, self.D)
        cells = self._contract(coordinates.detach(), stride)
        first, inverse = distinct(cells)
        key = self._free(stride, string_id, self._sets)
        self._add(key, cells.index_select(0, first))
        return key, (first, inverse)

    def stride(self, coordinate_map_key: Key, stride: StrideType, string_id: str = "") -> Key:
        """The key of the set `floor(c / (ts * s)) * (ts * s)`, made if it is not there."""
        steps = convert_to_int_list(stride, self.D)
        old, old_id = coordinate_map_key.get_key()
        target = CoordinateMapKey(
            [a * b for a, b in zip(old, steps, strict=True)], string_id or old_id
        )
        if target not in self._sets:
            source = self.sites(coordinate_map_key)
            cells = self._contract(source.indices, steps)
            first, _ = unique(cells)
            self._add(target, cells.index_select(0, first), source.batch_size)
        return target

    def origin(self) -> Key:
        """The key of one row for each batch id, at tensor stride 0."""
        key = CoordinateMapKey([0] * self.D, "")
        if key not in self._sets:
            source = next(iter(self._sets.values())).indices if self._sets else None
            if source is None:
                source = next(iter(self._fields.values())).int()
            batch = torch.unique(source[:, 0])
            rows = source.new_zeros((len(batch), self.D + 1))
            rows[:, 0] = batch
            self._add(key, rows)
        return key

    def size(self, coordinate_map_key: Key) -> int:
        """Rows of a set, or of a field."""
        if coordinate_map_key in self._sets:
            return len(self._sets[coordinate_map_key])
        return len(self._field(coordinate_map_key))

    def _get_coordinate_map_key(self, key_or_tensor_strides: Key | StrideType) -> Key:
        if isinstance(key_or_tensor_strides, CoordinateMapKey):
            return key_or_tensor_strides
        stride = convert_to_int_list(key_or_tensor_strides, self.D)
        for key in self._sets:
            if key.get_tensor_stride() == stride:
                return key
        _check.fail("tensor_stride", f"that of one of {list(self._sets)}", stride)

    def get_coordinate_map_keys(self, tensor_stride: StrideType) -> list[Key]:
        """Keys of this tensor stride."""
        stride = convert_to_int_list(tensor_stride, self.D)
        return [key for key in self._sets if key.get_tensor_stride() == stride]

    def get_coordinates(self, coords_key_or_tensor_strides: Key | StrideType) -> torch.Tensor:
        """Coordinates int32 [N, 1 + D], multiples of the tensor stride."""
        key = self._get_coordinate_map_key(coords_key_or_tensor_strides)
        indices, stride = self.sites(key).indices, key.get_tensor_stride()
        if set(stride) <= {0, 1}:
            return indices
        if key not in self._absolute:
            self._absolute[key] = indices * indices.new_tensor([1, *stride])
        return self._absolute[key]

    def number_of_unique_batch_indices(self) -> int:
        return self.size(self.origin())

    def get_unique_coordinate_map_key(self, tensor_stride: StrideType) -> Key:
        """A key of this tensor stride that no set has."""
        stride = convert_to_int_list(tensor_stride, self.D)
        return self._free(stride, "", self._sets)

    # ----------------------------------------------------------------------------- fields

    def insert_field(
        self, coordinates: torch.Tensor, tensor_stride: StrideType, string_id: str = ""
    ) -> Key:
        """Add continuous coordinates [N, 1 + D]."""
        stride = convert_to_int_list(tensor_stride, self.D)
        key = self._free(stride, string_id, self._fields)
        self._fields[key] = coordinates
        return key

    def _field(self, key: Key) -> torch.Tensor:
        if key not in self._fields:
            _check.fail("coordinate field map key", f"one of {list(self._fields)}", key)
        return self._fields[key]

    def get_coordinate_field(self, coords_key_or_tensor_strides: Key) -> torch.Tensor:
        """Continuous coordinates [N, 1 + D]."""
        return self._field(coords_key_or_tensor_strides)

    def field_to_sparse_insert_and_map(
        self,
        field_map_key: Key,
        sparse_tensor_stride: StrideType,
        sparse_tensor_string_id: str = "",
    ) -> tuple[Key, tuple[torch.Tensor, torch.Tensor]]:
        """Add the set of the cells of a field; as `insert_and_map`."""
        stride = convert_to_int_list(sparse_tensor_stride, self.D)
        field = _check.narrowed("coordinates", self._field(field_map_key).floor())
        cells = self._contract(field, stride)
        first, inverse = distinct(cells)
        key = self._free(stride, sparse_tensor_string_id, self._sets)
        self._add(key, cells.index_select(0, first))
        self._from_fields[field_map_key, key] = (first, inverse)
        return key, (first, inverse)

    def exists_field_to_sparse(self, field_map_key: Key, sparse_map_key: Key) -> bool:
        """Whether this set was made from this field."""
        return (field_map_key, sparse_map_key) in self._from_fields

    def field_to_sparse_keys(self, field_map_key: Key) -> list[Key]:
        """Keys of the sets made from a field."""
        return [key for field, key in self._from_fields if field == field_map_key]

    def get_field_to_sparse_map(
        self, field_map_key: Key, sparse_map_key: Key
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`(unique_map, inverse_map)` of a set made from a field."""
        if (field_map_key, sparse_map_key) not in self._from_fields:
            _check.fail("sparse_map_key", "of a set made from this field", sparse_map_key)
        return self._from_fields[field_map_key, sparse_map_key]

    def field_to_sparse_map(
        self, field_map_key: Key, sparse_map_key: Key
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Row of each point of a field in any set (-1: none), and the points' rows."""
        field = self._field(field_map_key)
        floored = _check.narrowed("coordinates", field.floor())
        cells = self._contract(floored, sparse_map_key.get_tensor_stride())
        sites = self.sites(sparse_map_key)
        rows = lookup(sites.indices, sites.table(), cells).long()
        return rows, torch.arange(len(rows), device=rows.device)

    def origin_field(self) -> Key:
        return self.origin()

    def origin_field_map(self, key: Key) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Batch ids, and the rows of each in a field."""
        return self._rows_by_batch(self._field(key)[:, 0].int())

    # ------------------------------------------------------------------------------- maps

    def batch_rows(self, key: Key, column: torch.Tensor | None = None) -> torch.Tensor:
        """Row of each site's batch id in the origin set, int64 [N]."""
        origin = self.sites(self.origin()).indices[:, 0].contiguous()
        batch = self.sites(key).indices[:, 0] if column is None else column.to(origin.dtype)
        return torch.searchsorted(origin, batch.contiguous())

    def _rows_by_batch(self, column: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        ids = self.sites(self.origin()).indices[:, 0].long()
        last = int(ids.max()) if len(ids) else -1
        return ids, [(column == b).nonzero()[:, 0] for b in range(last + 1)]

    def origin_map(self, key: Key) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Batch ids that there are, and the rows of each id up to the last."""
        return self._rows_by_batch(self.sites(key).indices[:, 0])

    def stride_map(self, in_key: Key, stride_key: Key) -> torch.Tensor:
        """Input rows and the rows of their cells in a coarser set: int64 [2, n]."""
        coarse = self.sites(stride_key)
        ratio = self._ratio(in_key, stride_key)
        cells = self._contract(self.sites(in_key).indices, ratio)
        rows = lookup(coarse.indices, coarse.table(), cells)
        kept = (rows >= 0).nonzero()[:, 0]
        return torch.stack([kept, rows[kept].long()])

    def _ratio(self, fine: Key, coarse: Key) -> list[int]:
        pairs = list(zip(coarse.get_tensor_stride(), fine.get_tensor_stride(), strict=True))
        if any(b == 0 or a % b for a, b in pairs):
            _check.fail("tensor stride of the output", f"a multiple of {fine}", coarse)
        return [a // b for a, b in pairs]

    def union_map(self, in_keys: Sequence[Key], out_key: Key) -> list[torch.Tensor]:
        """Rows of each input and their rows in the union, int64 [2, n] each; sets `out_key`.

        The union's rows are in order of batch id, then first occurrence.
        """
        sets = [self.sites(key) for key in in_keys]
        joined = torch.cat([sites.indices for sites in sets])
        first, inverse = unique(joined)
        if not out_key.is_key_set():
            out_key.set_key(self._free(in_keys[0].get_tensor_stride(), "", self._sets))
        self._add(out_key, joined.index_select(0, first), max(sites.batch_size for sites in sets))
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
        sites = self.sites(key)
        made: tuple[torch.Tensor, torch.Tensor] = trilinear_map(
            sites.indices, sites.table(), self.in_units(key, samples)
        )
        return made

    def in_units(self, key: Key, samples: torch.Tensor) -> torch.Tensor:
        """Samples [Q, 1 + D] in index space of a set's level."""
        stride = samples.new_tensor([1, *key.get_tensor_stride()])
        return (samples / stride).contiguous()

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
        """Tap number -> int32 [2, n] of input and output rows; taps without pairs are left out."""
        custom = region_type == RegionType.CUSTOM
        kernel = KernelGenerator(
            kernel_size,
            stride,
            dilation,
            region_type=region_type,
            region_offsets=region_offset if custom else None,
            dimension=self.D,
        )
        found = self.pairs(
            self._get_coordinate_map_key(in_key),
            self._get_coordinate_map_key(out_key),
            kernel,
            transposed=is_transpose,
            as_cell=is_pool and kernel.kernel_size == kernel.kernel_stride,
            in_order=True,
        )
        made = {tap: torch.stack(found.tap(tap)) for tap in range(found.num_taps)}
        return {tap: rows for tap, rows in made.items() if rows.shape[1]}

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
        if not shape.is_box or (in_order and shape.taps != tuple(range(len(shape.taps)))):
            chosen = (fine, coarse, shape._replace(is_box=not shape.is_box))
            if chosen not in self._maps:
                self._maps[chosen] = found.select(shape.taps)
            found = self._maps[chosen]
        return found.transposed() if transposed else found

    def _build(self, fine: Key, coarse: Key, shape: Region) -> KernelMap:
        source, target, geometry = self.sites(fine), self.sites(coarse), shape.geometry
        strides = list(zip(fine.get_tensor_stride(), coarse.get_tensor_stride(), strict=True))
        if fine == coarse:
            geometry = Geometry(
                geometry.kernel_size, (1,) * self.D, geometry.padding, geometry.dilation
            )
            if is_centred(geometry):
                return source.submanifold(geometry.kernel_size, geometry.dilation)
            return source.given(target, geometry)
        if all(a > 0 and b % a == 0 for a, b in strides):
            steps = tuple(b // a for a, b in strides)
            geometry = Geometry(geometry.kernel_size, steps, geometry.padding, geometry.dilation)
            return source.given(target, geometry)
        return self._build_absolute(fine, coarse, geometry)

    def _build_absolute(self, fine: Key, coarse: Key, geometry: Geometry) -> KernelMap:
        """Between strides that do not divide one another: in the peer's absolute coordinates."""
        unit = fine.get_tensor_stride()
        wide = Geometry(
            geometry.kernel_size,
            (1,) * self.D,
            tuple(a * b for a, b in zip(geometry.padding, unit, strict=True)),
            tuple(a * b for a, b in zip(geometry.dilation, unit, strict=True)),
        )
        source = Coordinates(self.get_coordinates(fine), None, self.sites(fine).batch_size)
        target = Coordinates(self.get_coordinates(coarse), None, self.sites(coarse).batch_size)
        return source.given(target, wide)

    # ------------------------------------------------------------------------ output keys

    def out_key(self, in_key: Key, kernel: KernelGenerator) -> Key:
        """The key of a layer's outputs, made if need be: strided, or with every site reached."""
        if not kernel.expand_coordinates:
            if kernel.requires_strided_coordinates:
                return in_key
            return self.stride(in_key, kernel.kernel_stride)
        source, shape = self.sites(in_key), region(kernel)
        geometry = shape.geometry
        reach = tuple(
            d * (k - 1) - p
            for d, k, p in zip(
                geometry.dilation, geometry.kernel_size, geometry.padding, strict=True
            )
        )
        # The peer adds the offsets to the inputs to find sites, and takes them off to find pairs.
        mirrored = Geometry(geometry.kernel_size, geometry.stride, reach, geometry.dilation)
        found, sites = source.footprint(mirrored, None)
        indices = sites.indices
        if not shape.is_box:
            mirrored_taps = [math.prod(geometry.kernel_size) - 1 - tap for tap in shape.taps]
            kept = torch.unique(found.select(mirrored_taps).dst.long())
            indices = indices.index_select(0, kept)
        stride = [
            a * b for a, b in zip(in_key.get_tensor_stride(), kernel.kernel_stride, strict=True)
        ]
        key = self._free(stride, "", self._sets)
        self._add(key, indices, source.batch_size)
        return key

    def out_key_transposed(self, in_key: Key, kernel: KernelGenerator) -> Key:
        """The key of a transposed layer's outputs: the finer set that is there, or every site
        reached."""
        steps = kernel.kernel_stride
        old = in_key.get_tensor_stride()
        if any(a % b for a, b in zip(old, steps, strict=True)):
            _check.fail("stride", f"a divisor of the tensor stride {old}", steps)
        stride = [a // b for a, b in zip(old, steps, strict=True)]
        key = CoordinateMapKey(stride, "")
        if key in self._sets and not kernel.expand_coordinates:
            return key
        key = self._free(stride, "", self._sets)
        source, shape = self.sites(in_key), region(kernel)
        found, sites = source.footprint(shape.geometry, None, transposed=True)
        indices = sites.indices
        if shape.is_box:
            self._maps[key, in_key, shape] = found.transposed()
        else:
            kept = torch.unique(found.select(shape.taps).dst.long())
            indices = indices.index_select(0, kept)
        self._add(key, indices, source.batch_size)
        return key


def distinct(cells: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """First rows in order of occurrence, and each row's place among them."""
    first, inverse = unique(cells)
    first, order = torch.sort(first)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return first, place[inverse]


def is_centred(geometry: Geometry) -> bool:
    """Whether the kernel is that of a submanifold layer."""
    sizes = zip(geometry.kernel_size, geometry.padding, geometry.dilation, strict=True)
    return all(k % 2 == 1 and p == d * (k // 2) for k, p, d in sizes)
