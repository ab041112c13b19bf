"""Sites in tensors of fixed size: what a CUDA graph can replay on every scene.

A set of rows has room for so many; the first of them are sites, the others lie in batch -1 and
meet nobody. How many are sites is known on the device alone, so that no map makes the host wait.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import torch

from .. import _check
from .._registry import backend_for
from ..geometry import Geometry, submanifold_geometry
from ..kernel_map import Coordinates, KernelMap
from ..ops.conv import conv_plan
from ..ops.coordinates import coordinate_lookup
from ..ops.kernel_map import kernel_map_neighbours
from ..ops.order import running_sum

__all__ = ["Room", "Rooms", "nowhere", "refuse_room"]


@dataclass
class Rooms:
    """The rooms of the sets that a network makes, in the order in which it makes them.

    Without `sizes` every set gets the room of the set it is made from.
    """

    sizes: list[int] | None = None
    counts: list[torch.Tensor] = field(default_factory=list)
    made: list[Room] = field(default_factory=list)
    constants: dict[object, torch.Tensor] = field(default_factory=dict)

    def next(self, largest: int) -> int:
        return largest if self.sizes is None else self.sizes[len(self.counts)]


def nowhere(rows: int, columns: int, device: torch.device) -> torch.Tensor:
    """Rows that are no sites: batch -1, each at a place of its own."""
    out = torch.zeros((rows, columns), dtype=torch.int32, device=device)
    out[:, 0] = -1
    out[:, 1] = torch.arange(rows, dtype=torch.int32, device=device)
    return out


class _RoomMap(KernelMap):
    """A map as its neighbour table and the table the other way, None where it is the same with
    the taps in reverse; without pairs."""

    tables: tuple[torch.Tensor, torch.Tensor | None]

    def transposed(self) -> KernelMap:
        made = _RoomMap(
            *(self.src, self.dst, self.splits, self.out_indices, self.in_indices),
            *(self.geometry, self.mirrored, not self.is_transposed, True, self._plans),
        )
        made.tables = self.tables
        return made

    def _plan(self, into_first_src: bool) -> list[torch.Tensor]:
        key = (backend_for(self.src.device), into_first_src)
        if key not in self._plans:
            table = self.tables[into_first_src]
            if table is None:
                table = self.tables[0].flip(1)
            sides = (self.splits, self.num_in, self.num_out)
            self._plans[key] = conv_plan(table, table, *sides, self.mirrored, True)
        return self._plans[key]


class Room(Coordinates):
    """Sites with room for more; makes maps without knowing how many there are.

    Args:
        indices: int32 [R, 1 + D]; rows of batch -1 are no sites and come last.
        spatial_shape: grid, or None.
        batch_size: number of samples.
        rooms: of the sets made from this one.
    """

    _has_room = True

    def __init__(
        self,
        indices: torch.Tensor,
        spatial_shape: Sequence[int] | None,
        batch_size: int,
        rooms: Rooms,
    ) -> None:
        super().__init__(indices, spatial_shape, batch_size)
        self.rooms, self.used = rooms, indices[:, 0] >= 0
        self._count: torch.Tensor | None = None
        self._zeros: Callable[[], object] = lambda: None
        self._zeros_version = 0
        self.trust_distinct()

    def _note_zeros(self, features: torch.Tensor) -> None:
        if not features.is_inference():  # nothing would tell that such a tensor was edited
            self._zeros, self._zeros_version = weakref.ref(features), features._version

    def has_zeros(self, features: torch.Tensor) -> bool:
        """Whether these features, unchanged since a layer made them, are zero beyond the sites."""
        return self._zeros() is features and features._version == self._zeros_version

    def count(self) -> torch.Tensor:
        """How many sites there are, on the device."""
        if self._count is None:
            self._count = self.used.sum()
        return self._count

    def submanifold(self, kernel_size: Sequence[int], dilation: Sequence[int]) -> KernelMap:
        geometry = submanifold_geometry(kernel_size, dilation)
        key = ("submanifold", geometry)
        if key not in self._maps:
            lists = (list(kernel_size), list(dilation))
            table = kernel_map_neighbours(self.indices, self.table(), *lists)
            self._maps[key] = _map(table, None, self, self, geometry)
        return self._maps[key]

    def _constant(self, key: object, values: Sequence[object]) -> torch.Tensor:
        """A table on the device, made before the graph is captured and kept."""
        constants = self.rooms.constants
        if key not in constants:
            constants[key] = torch.tensor(values, dtype=torch.int32, device=self.indices.device)
        return constants[key]

    def footprint(
        self, geometry: Geometry, out_shape: Sequence[int] | None, *, transposed: bool = False
    ) -> tuple[KernelMap, Coordinates]:
        if transposed:
            _refuse(geometry, "transposed")
        return self._cells(geometry, out_shape, bounded=out_shape is not None)

    def floor(
        self, geometry: Geometry, out_shape: Sequence[int] | None
    ) -> tuple[KernelMap, Coordinates]:
        return self._cells(geometry, out_shape, bounded=False)

    def given(self, target: Coordinates, geometry: Geometry) -> KernelMap:
        _refuse(geometry, "onto given sites")

    def _cells(
        self, geometry: Geometry, out_shape: Sequence[int] | None, bounded: bool
    ) -> tuple[KernelMap, Coordinates]:
        """Whole cells: every row lies in one of them, at one tap."""
        plain = max(geometry.padding) == 0 and max(geometry.dilation) == 1
        if not plain or geometry.kernel_size != geometry.stride:
            _refuse(geometry, "of overlapping windows")
        shape = None if out_shape is None else tuple(out_shape)
        key = ("cells", geometry, shape, bounded)
        if key not in self._maps:
            self._maps[key], self._targets[key] = self._make_cells(geometry, shape, bounded)
        return self._maps[key], self._targets[key]

    def _make_cells(
        self, geometry: Geometry, shape: tuple[int, ...] | None, bounded: bool
    ) -> tuple[KernelMap, Coordinates]:
        stride, volume = list(geometry.stride), geometry.volume
        steps = self._constant(("stride", geometry), [1, *stride])
        places = [math.prod(stride[axis + 1 :]) for axis in range(len(stride))]
        radix = self._constant(("radix", geometry), [0, *places])
        cells = torch.div(self.indices, steps, rounding_mode="floor")
        tap = ((self.indices - cells * steps) * radix).sum(1)
        cell_set = Coordinates(cells, None, self.batch_size)
        owner = coordinate_lookup(cells, cell_set.table(), cells).long()
        used = self.used
        if bounded and shape is not None:
            limit = self._constant(("grid", shape), [2**31 - 1, *shape])
            used = used & (cells < limit).all(1)
        rows = torch.arange(len(self), dtype=torch.int32, device=cells.device)
        first = (owner == rows) & used
        rank = running_sum(first)
        size = self.rooms.next(len(self))
        place = (rank - 1)[owner]
        kept = used & (place < size)
        self.rooms.counts.append(rank[-1])
        # The row after the last takes what has no place.
        out = nowhere(size + 1, cells.shape[1], cells.device)
        out[torch.where(first & kept, place, size)] = cells
        out[:, 0].masked_fill_(torch.arange(size + 1, device=out.device) >= rank[-1], -1)
        down = torch.full((size + 1, volume), -1, dtype=torch.int32, device=out.device)
        down.view(-1)[torch.where(kept, place, size) * volume + tap] = rows
        up = torch.full((len(self), volume), -1, dtype=torch.int32, device=out.device)
        up.scatter_(1, tap[:, None], torch.where(kept, place, -1).int()[:, None])
        target = Room(out[:size], shape, self.batch_size, self.rooms)
        self.rooms.made.append(target)
        return _map(down[:size], up, self, target, geometry), target


def refuse_room(sites: Coordinates, what: str) -> None:
    """Refuse sites with room, for a layer that would take the room for sites."""
    if isinstance(sites, Room):
        _fail(what)


def _refuse(geometry: Geometry, kind: str) -> NoReturn:
    _fail(f"{geometry} {kind}")


def _fail(what: str) -> NoReturn:
    _check.fail(
        "layer",
        "a convolution, submanifold, inverse, 1 x 1, or of windows that do not overlap, to be "
        "captured",
        what,
        "capture the parts of the network before and after it",
    )


def _map(
    table: torch.Tensor,
    back: torch.Tensor | None,
    source: Coordinates,
    target: Coordinates,
    geometry: Geometry,
) -> KernelMap:
    device, sites = table.device, (source.indices, target.indices, geometry)
    mirrored = back is None
    if backend_for(device) == "cuda":
        none = torch.empty(0, dtype=torch.int32, device=device)
        splits = torch.zeros(table.shape[1] + 1, dtype=torch.int64)
        made = _RoomMap(none, none, splits, *sites, mirrored, False, True)
        made.tables = (table, back)
        return made
    flat = table.t().contiguous()
    there = flat >= 0
    dst = there.nonzero()[:, 1].int()
    counts = there.sum(1).cpu()
    splits = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return KernelMap(flat[there], dst, splits, *sites, mirrored, False, True)
