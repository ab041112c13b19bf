"""Sets of coordinates and fields by key: what the coordinate manager keeps.

A set is kept in index space of its level (coordinates divided by the tensor stride); the peer's
absolute coordinates are made on request. A set whose coordinates are no multiples of its tensor
stride, which the peer takes as it is, is kept in absolute coordinates: it is "off the lattice".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import _check
from ...geometry import coarser
from ...kernel_map import Coordinates
from ...ops.coordinates import cells_of, distinct, lookup, unique, unique_sorted
from ...ops.keys import find_keys
from ...ops.lattice import batch_count, floored, lattice_places, on_lattice
from ._backend._C import CoordinateMapKey
from .MinkowskiCommon import StrideType, convert_to_int_list

__all__ = ["CoordinateSets", "to_indices"]

Key = CoordinateMapKey


class CoordinateSets:
    """Sets of coordinates, and fields of points, by (tensor stride, id).

    Args:
        axes: spatial axes, 1 to 4.
    """

    def __init__(self, axes: int) -> None:
        if not 1 <= axes <= 4:
            _check.fail("D", "1 to 4", axes)
        self.D = axes
        self._sets: dict[Key, Coordinates] = {}
        self._absolute: dict[Key, torch.Tensor] = {}
        self._off_lattice: set[Key] = set()
        self._fields: dict[Key, torch.Tensor] = {}
        self._from_fields: dict[tuple[Key, Key], tuple[torch.Tensor, torch.Tensor]] = {}
        self._count = 0

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

    def unit(self, key: Key) -> list[int]:
        """Steps between a set's indices in absolute coordinates: its tensor stride, or ones."""
        return [1] * self.D if key in self._off_lattice else key.get_tensor_stride()

    def absolute(self, key: Key) -> Coordinates:
        """The set of a key, in absolute coordinates."""
        sites = self.sites(key)
        indices = self.get_coordinates(key)
        if indices is sites.indices:
            return sites
        made = Coordinates(indices, None, sites.batch_size)
        made.trust_distinct()
        return made

    def _add(
        self,
        key: Key,
        indices: torch.Tensor,
        batch_size: int | None = None,
        *,
        off_lattice: bool = False,
    ) -> Coordinates:
        if batch_size is None:
            batch_size = batch_count(indices)
        sites = Coordinates(indices, None, batch_size)
        sites.trust_distinct()
        self._sets[key] = sites
        if off_lattice:
            self._off_lattice.add(key)
        return sites

    def insert_and_map(
        self, coordinates: torch.Tensor, tensor_stride: StrideType = 1, string_id: str = ""
    ) -> tuple[Key, tuple[torch.Tensor, torch.Tensor]]:
        """Add a set: distinct rows in order of first occurrence.

        Args:
            coordinates: int32 [N, 1 + D]; multiples of the tensor stride, or kept as they are.
            tensor_stride: of the set; 0 for one that other layers' strides do not lead to.
            string_id: of the key; another is made if it is taken.

        Returns:
            The key, and `(unique_map, inverse_map)` with `coordinates[unique_map][inverse_map] ==
            coordinates`.
        """
        _check.coordinates("coordinates", coordinates)
        if coordinates.shape[1] != self.D + 1:
            _check.fail("coordinates", f"of {self.D + 1} columns", coordinates.shape[1])
        stride = convert_to_int_list(tensor_stride, self.D)
        cells, off_lattice = to_indices(coordinates.detach(), stride)
        first, inverse = distinct(cells)
        if set(stride) == {0} and not string_id:
            string_id = "given"  # the key without an id is the origin's
        key = self._free(stride, string_id, self._sets)
        self._add(key, cells[first], off_lattice=off_lattice)
        return key, (first, inverse)

    def stride(self, coordinate_map_key: Key, stride: StrideType, string_id: str = "") -> Key:
        """The key of the set `floor(c / (ts * s)) * (ts * s)`, made if it is not there."""
        steps = convert_to_int_list(stride, self.D)
        old, old_id = coordinate_map_key.get_key()
        target = CoordinateMapKey(coarser(old, steps), string_id or old_id)
        if target not in self._sets:
            source = self.sites(coordinate_map_key)
            if coordinate_map_key in self._off_lattice:
                steps = target.get_tensor_stride()
            cells = cells_of(source.indices, steps)
            first, _ = unique(cells)
            self._add(target, cells[first], source.batch_size)
        return target

    def origin(self) -> Key:
        """The key of one row for each batch id, at tensor stride 0."""
        key = CoordinateMapKey([0] * self.D, "")
        if key not in self._sets:
            source = next(iter(self._sets.values())).indices if self._sets else None
            if source is None:
                source = next(iter(self._fields.values())).int()
            rows = torch.zeros_like(source)
            rows[:, 0] = source[:, 0]
            self._add(key, rows[unique_sorted(rows)[0]])
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
        """Coordinates int32 [N, 1 + D], multiples of the tensor stride unless others were given."""
        key = self._get_coordinate_map_key(coords_key_or_tensor_strides)
        indices, stride = self.sites(key).indices, self.unit(key)
        if set(stride) <= {0, 1}:
            return indices
        if key not in self._absolute:
            self._absolute[key] = lattice_places(indices, stride)
        return self._absolute[key]

    def number_of_unique_batch_indices(self) -> int:
        return self.size(self.origin())

    def get_unique_coordinate_map_key(self, tensor_stride: StrideType) -> tuple[list[int], str]:
        """A tensor stride, and an id that no set of that stride has."""
        return self._unused(tensor_stride, "")

    def _unused(self, tensor_stride: StrideType, string_id: str) -> tuple[list[int], str]:
        stride = convert_to_int_list(tensor_stride, self.D)
        self._count += 1
        name = f"{string_id}-{self._count}" if string_id else str(self._count)
        return self._free(stride, name, self._sets).get_key()

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
        cells = cells_of(floored("coordinates", self._field(field_map_key)), stride)
        first, inverse = distinct(cells)
        key = self._free(stride, sparse_tensor_string_id, self._sets)
        self._add(key, cells[first])
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
        rows = self._rows_of_cells(floored("coordinates", field), sparse_map_key).long()
        return rows, torch.arange(len(rows), device=rows.device)

    def _rows_of_cells(self, absolute: torch.Tensor, key: Key) -> torch.Tensor:
        """Row (-1: none) of the cell of each of absolute coordinates int32 in a set."""
        stride, sites = key.get_tensor_stride(), self.sites(key)
        cells = cells_of(absolute, stride)
        if key in self._off_lattice:
            cells = lattice_places(cells, stride)
        return lookup(sites.indices, sites.table(), cells)

    def origin_field(self) -> Key:
        return self.origin()

    def origin_field_map(self, key: Key) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Batch ids, and the rows of each in a field."""
        return self._rows_by_batch(self._field(key)[:, 0].int())

    def batch_rows(self, key: Key, rows: int | None = None) -> torch.Tensor:
        """Row of each site's, or point's, batch id in the origin set, int64 [N].

        Args:
            key: of a set, or of a field.
            rows: how many there are; tells a set and a field of one key apart.

        Raises:
            ValueError: if a batch id is not in the origin set; looked for on the CPU alone.
        """
        origin = self.sites(self.origin()).indices[:, 0].contiguous()
        sites = self._sets.get(key)
        if sites is None or (key in self._fields and rows not in (None, len(sites))):
            batch = self._field(key)[:, 0]
        else:
            batch = sites.indices[:, 0]
        found = find_keys(origin, batch.to(origin.dtype).contiguous())
        if found.device.type == "cpu" and bool((found < 0).any()):
            way_out = "use a manager for each batch, or make the largest one's tensor first"
            _check.fail("batch ids", f"among {origin.tolist()}, those pooled first", key, way_out)
        return found

    def _rows_by_batch(self, column: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        ids = self.sites(self.origin()).indices[:, 0].long()
        last = int(ids.max()) if len(ids) else -1
        return ids, [(column == b).nonzero()[:, 0] for b in range(last + 1)]

    def origin_map(self, key: Key) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Batch ids that there are, and the rows of each id up to the last."""
        return self._rows_by_batch(self.sites(key).indices[:, 0])


def to_indices(absolute: torch.Tensor, stride: Sequence[int]) -> tuple[torch.Tensor, bool]:
    """Coordinates in units of a tensor stride; or as they are, and True, if any is no multiple."""
    unit = [max(step, 1) for step in stride]
    cells = cells_of(absolute, unit)
    if cells is absolute or bool(on_lattice(absolute, unit).all()):
        return cells, False
    return absolute, True
