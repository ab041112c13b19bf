"""Kernel maps as values, and the coordinate sets that cache them.

`KernelMap` holds the pairs of a layer, grouped by tap. `Coordinates` holds one set of sites with
its table and the maps built on it, so that layers of equal geometry share them. Both remember the
tensor they were built from and its version: when a caller edits indices in place, they are rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, cast

import torch

from . import _check
from ._registry import backend_for
from .geometry import Geometry, submanifold_geometry
from .ops import kernel_map as rules
from .ops.conv import conv_plan
from .ops.coordinates import build_table, coordinate_lookup
from .ops.order import count_ids, order_keys

__all__ = ["Coordinates", "KernelMap", "MapStats"]

_Build = Callable[[], rules.CreatedPairs]


class MapStats(NamedTuple):
    """What a map costs: pairs per tap, matmuls (non-empty taps), multiply-accumulates, density."""

    pairs_per_tap: list[int]
    pairs: int
    matmuls: int
    macs: int
    density: float


@dataclass(eq=False)
class KernelMap:
    """Pairs `(src, dst)` of a layer grouped by tap.

    Args:
        src: int32 [P], input rows.
        dst: int32 [P], output rows, ascending within each tap (of a `transposed()` map, src is).
        splits: int64 [K + 1] on the CPU; tap t holds `splits[t]:splits[t + 1]`.
        in_indices: int32 [N, 1 + D], the input sites.
        out_indices: int32 [M, 1 + D], the output sites.
        geometry: the layer's geometry; of a transposed map, that of the layer it was made from.
        mirrored: tap K - 1 - t is tap t with the roles swapped (submanifold maps of distinct rows).
        is_transposed: the roles of the equation are swapped.
        distinct: known: no two pairs of a tap share a row, on either side.
    """

    src: torch.Tensor
    dst: torch.Tensor
    splits: torch.Tensor
    in_indices: torch.Tensor
    out_indices: torch.Tensor
    geometry: Geometry
    mirrored: bool = False
    is_transposed: bool = False
    distinct: bool = False
    _plans: dict[tuple[str, bool], list[torch.Tensor]] = field(default_factory=dict, repr=False)

    @property
    def num_in(self) -> int:
        return self.in_indices.shape[0]

    @property
    def num_out(self) -> int:
        return self.out_indices.shape[0]

    @property
    def num_taps(self) -> int:
        return self.splits.shape[0] - 1

    def __len__(self) -> int:
        return self.src.shape[0]

    def transposed(self) -> KernelMap:
        """The same pairs with the roles swapped, nothing copied: within a tap src ascends."""
        return KernelMap(
            self.dst,
            self.src,
            self.splits,
            self.out_indices,
            self.in_indices,
            self.geometry,
            self.mirrored,
            not self.is_transposed,
            self.distinct,
            self._plans,
        )

    def plan(self) -> list[torch.Tensor]:
        """What the current backend precomputes for sums into dst; made once, shared by the twin."""
        return self._plan(self.is_transposed)

    def grad_plan(self) -> list[torch.Tensor]:
        """What the current backend precomputes for sums into src."""
        return self._plan(not self.is_transposed)

    def _plan(self, into_first_src: bool) -> list[torch.Tensor]:
        key = (backend_for(self.src.device), into_first_src)
        if key not in self._plans:
            src, dst, rows = self.src, self.dst, (self.num_in, self.num_out)
            if into_first_src != self.is_transposed:
                src, dst, rows = dst, src, (self.num_out, self.num_in)
            with lasting():
                self._plans[key] = conv_plan(
                    src, dst, self.splits, *rows, self.mirrored, self.distinct
                )
        return self._plans[key]

    def tap(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The (src, dst) rows of one tap."""
        begin, end = self.splits[index : index + 2].tolist()
        return self.src[begin:end], self.dst[begin:end]

    def pairs_per_tap(self) -> torch.Tensor:
        """Number of pairs of each tap, int64 [K] on the CPU."""
        return self.splits.diff()

    def select(self, taps: Sequence[int]) -> KernelMap:
        """The map of some taps, in the order given: kernels that are no box (crosses, lists).

        The geometry stays that of the box which the taps were taken from.
        """
        chosen = [self.tap(tap) for tap in taps]
        splits = torch.tensor([0] + [len(src) for src, _ in chosen], dtype=torch.int64).cumsum(0)
        return KernelMap(
            torch.cat([src for src, _ in chosen]),
            torch.cat([dst for _, dst in chosen]),
            splits,
            self.in_indices,
            self.out_indices,
            self.geometry,
            is_transposed=self.is_transposed,
            distinct=self.distinct,
        )

    def taps(self) -> torch.Tensor:
        """Tap number of each pair, int64 [P]."""
        counts = self.splits.diff().to(self.src.device)
        return torch.repeat_interleave(counts, output_size=len(self))

    def neighbours(self) -> torch.Tensor:
        """Neighbour table int32 [M, K]: the input row that each output meets through each tap, or
        -1."""
        table = torch.full(
            (self.num_out, self.num_taps), -1, dtype=torch.int32, device=self.src.device
        )
        table[self.dst.long(), self.taps()] = self.src
        return table

    def stats(self, in_channels: int = 1, out_channels: int = 1, groups: int = 1) -> MapStats:
        """Pairs per tap, matmuls, multiply-accumulates for the given channels, and density.

        Density is pairs / (M * K): the share of a dense layer's products, at the output sites,
        that exist.
        """
        counts = self.splits.diff().tolist()
        pairs = sum(counts)
        cells = self.num_out * self.num_taps
        return MapStats(
            counts,
            pairs,
            sum(count > 0 for count in counts),
            pairs * in_channels * out_channels // groups,
            pairs / cells if cells else 0.0,
        )

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_plans": {}}

    def to(self, device: torch.device | str, non_blocking: bool = False) -> KernelMap:
        """The map on another device; plans are made anew there."""
        moved = (
            value.to(device, non_blocking=non_blocking)
            for value in (self.src, self.dst, self.in_indices, self.out_indices)
        )
        src, dst, in_indices, out_indices = moved
        return KernelMap(
            src,
            dst,
            self.splits,
            in_indices,
            out_indices,
            self.geometry,
            self.mirrored,
            self.is_transposed,
            self.distinct,
        )


class Coordinates:
    """One set of sites: indices, grid, table, and the maps built on it.

    Args:
        indices: int32 [N, 1 + D], (batch, *axes).
        spatial_shape: grid, or None for none (then negative positions are legal).
        batch_size: number of samples.
    """

    _has_room: ClassVar[bool] = False
    """Whether rows may be no sites (`nn.capture`)."""

    def __init__(
        self, indices: torch.Tensor, spatial_shape: Sequence[int] | None, batch_size: int
    ) -> None:
        self.indices = indices
        self.spatial_shape = None if spatial_shape is None else tuple(spatial_shape)
        self.batch_size = batch_size
        self._version = edit_count(indices)
        self._tables: dict[str, torch.Tensor] = {}
        self._distinct: bool | None = None
        self._maps: dict[Hashable, KernelMap] = {}
        self._targets: dict[Hashable, Coordinates] = {}

    def __len__(self) -> int:
        return self.indices.shape[0]

    def __deepcopy__(self, memo: dict[int, object]) -> Coordinates:
        return Coordinates(self.indices.clone(), self.spatial_shape, self.batch_size)

    def __reduce__(self) -> tuple[type[Coordinates], tuple[object, ...]]:
        return Coordinates, (self.indices, self.spatial_shape, self.batch_size)

    def is_unchanged(self) -> bool:
        """Whether nobody edited the indices in place since this set was made."""
        return torch.compiler.is_compiling() or self._version == edit_count(self.indices)

    def _refresh(self) -> None:
        if not self._maps and not self._tables:  # those that moved along need no values
            _check.valued("indices", self.indices)
        if not self.is_unchanged():
            self._version = edit_count(self.indices)
            self._tables.clear()
            self._maps.clear()
            self._targets.clear()
            self._distinct = None

    def table(self) -> torch.Tensor:
        """The look-up table of the current backend, built once."""
        self._refresh()
        backend = backend_for(self.indices.device)
        if backend not in self._tables:
            with lasting():
                self._tables[backend] = build_table(self.indices)
        return self._tables[backend]

    def _table_for_neighbours(self) -> torch.Tensor | None:
        """The table, or none if it is not there and the backend does without."""
        backend = backend_for(self.indices.device)
        spared = self.indices.shape[1] == 4 and backend in rules.WITHOUT_TABLE
        return self._tables.get(backend) if spared else self.table()

    def first_duplicate(self) -> int | None:
        """The lowest row that repeats an earlier one, or None."""
        if self._is_distinct():
            return None
        own = torch.arange(len(self), dtype=torch.int32, device=self.indices.device)
        owner = cast(torch.Tensor, coordinate_lookup(self.indices, self.table(), self.indices))
        return int((owner != own).nonzero()[0])

    def _is_distinct(self) -> bool:
        self._refresh()
        if self._distinct is None:
            own = torch.arange(len(self), dtype=torch.int32, device=self.indices.device)
            owner = cast(torch.Tensor, coordinate_lookup(self.indices, self.table(), self.indices))
            self._distinct = bool(torch.equal(owner, own))
        return self._distinct

    def known_distinct(self) -> bool:
        """Whether the rows are known to be distinct, without looking."""
        return bool(self._distinct) and self.is_unchanged()

    def _note_zeros(self, features: torch.Tensor) -> None:
        """Hear that these features are zero in rows that are no sites, of which there are none."""

    def trust_distinct(self) -> None:
        """Record that the rows are distinct by construction."""
        self._distinct = True

    def identity(self) -> KernelMap:
        """The map of a 1 x 1 layer: every row meets itself, repeated rows too."""
        self._refresh()
        key = "identity"
        if key not in self._maps:
            with lasting():
                rows = torch.arange(len(self), dtype=torch.int32, device=self.indices.device)
                splits = torch.tensor([0, len(self)], dtype=torch.int64)
            self._maps[key] = KernelMap(
                *(rows, rows, splits, self.indices, self.indices, self._pointwise_geometry()),
                mirrored=True,
                distinct=True,
            )
        return self._maps[key]

    def pointwise(self, taps: torch.Tensor, num_taps: int) -> KernelMap:
        """The map of a layer in which every row meets itself, through a tap of its own.

        Args:
            taps: integers [N], each row's tap.
            num_taps: K.

        Raises:
            ValueError: if there are not N taps, or one lies outside [0, K).
        """
        _check.same_rows("taps", len(taps), "indices", len(self))
        wide = taps.long()
        if len(wide):
            low, high = (int(bound) for bound in torch.aminmax(wide))
            if low < 0 or high >= num_taps:
                _check.fail("taps", f"in [0, {num_taps})", low if low < 0 else high)
        rows = order_keys(wide.int()).int()
        ends = count_ids(wide, num_taps).cpu().cumsum(0)
        splits = torch.cat([ends.new_zeros(1), ends])
        return KernelMap(
            *(rows, rows, splits, self.indices, self.indices, self._pointwise_geometry()),
            distinct=True,
        )

    def _pointwise_geometry(self) -> Geometry:
        ones = (1,) * (self.indices.shape[1] - 1)
        return submanifold_geometry(ones, ones)

    def reached(
        self, geometry: Geometry, taps: Sequence[int] | None = None, *, transposed: bool = False
    ) -> tuple[KernelMap | None, torch.Tensor]:
        """Every site, on no grid, that an input reaches through some of a kernel's taps.

        Args:
            geometry: of the box that the kernel is cut from.
            taps: those there are, row-major numbers in the box; None for all.
            transposed: from coarse sites to fine ones.

        Returns:
            The map onto the sites (None where taps were left out), and the sites int32 [M, 1 + D],
            in the order of the box's footprint.
        """
        found, sites = self.footprint(geometry, None, transposed=transposed)
        if taps is None or len(set(taps)) == geometry.volume:
            return found, sites.indices
        hit = torch.zeros(len(sites), dtype=torch.bool, device=self.indices.device)
        hit[found.select(taps).dst.long()] = True
        return None, sites.indices[hit]

    def submanifold(self, kernel_size: Sequence[int], dilation: Sequence[int]) -> KernelMap:
        """The map of a submanifold layer, built once per kernel size and dilation."""
        self._refresh()
        key = ("submanifold", tuple(kernel_size), tuple(dilation))
        if key not in self._maps:
            geometry = submanifold_geometry(kernel_size, dilation)
            with lasting():
                table = self._table_for_neighbours()
                pairs = rules.submanifold(self.indices, kernel_size, dilation, table)
            distinct = self._is_distinct()
            self._maps[key] = KernelMap(
                *pairs,
                *(self.indices, self.indices, geometry),
                mirrored=distinct,
                distinct=distinct,
            )
        return self._maps[key]

    def footprint(
        self, geometry: Geometry, out_shape: Sequence[int] | None, *, transposed: bool = False
    ) -> tuple[KernelMap, Coordinates]:
        """The map onto every site that an input reaches, and those sites."""
        shape = None if out_shape is None else tuple(out_shape)
        return self._created(
            "generative" if transposed else "footprint",
            geometry,
            shape,
            lambda: rules.footprint(self.indices, geometry, shape, transposed=transposed),
        )

    def floor(
        self, geometry: Geometry, out_shape: Sequence[int] | None
    ) -> tuple[KernelMap, Coordinates]:
        """The map onto the distinct `floor(p / stride)`, and those sites."""
        shape = None if out_shape is None else tuple(out_shape)
        return self._created(
            "floor", geometry, shape, lambda: rules.floor(self.indices, geometry, self.table())
        )

    def given(self, target: Coordinates, geometry: Geometry) -> KernelMap:
        """The map onto sites that the caller hands over; cached on this set by the target's
        tensor."""
        self._refresh()
        key = _key("given", geometry, id(target.indices), edit_count(target.indices))
        if key not in self._maps:  # a map keeps the tensor of its key alive
            with lasting():
                pairs = rules.given(self.indices, target.indices, geometry, self.table())
            self._maps[key] = KernelMap(
                *pairs,
                *(self.indices, target.indices, geometry),
                distinct=self.known_distinct() and target.known_distinct(),
            )
        return self._maps[key]

    def _created(
        self, rule: str, geometry: Geometry, shape: tuple[int, ...] | None, build: _Build
    ) -> tuple[KernelMap, Coordinates]:
        self._refresh()
        key = self._place(rule, geometry, shape)
        if key not in self._maps or not self._targets[key].is_unchanged():
            with lasting():
                out_indices, src, dst, splits = build()
            target = Coordinates(out_indices, shape, self.batch_size)
            target.trust_distinct()
            self._targets[key] = target
            self._maps[key] = KernelMap(
                *(src, dst, splits, self.indices, out_indices, geometry),
                distinct=self.known_distinct(),
            )
        return self._maps[key], self._targets[key]

    def _place(self, rule: str, geometry: Geometry, shape: tuple[int, ...] | None) -> Hashable:
        """The key of a map onto created sites. Grids of one rule and geometry are numbered and stay
        out of it: compiled networks specialise on keys, and the grid is the scene's."""
        number = 0
        if torch.compiler.is_compiling() and _key(rule, geometry, 1) not in self._maps:
            return _key(rule, geometry, number)
        while (place := _key(rule, geometry, number)) in self._maps:
            if self._targets[place].spatial_shape == shape:
                return place
            number += 1
        return place

    def check(self) -> None:
        """Refuse rows outside grid or batch, and repeated rows.

        Raises:
            ValueError: naming column, value and limit, or the two rows that coincide.
        """
        _check.indices_in_grid(self.indices, self.spatial_shape, self.batch_size)
        self.refuse_duplicates()

    def refuse_duplicates(self) -> None:
        """Refuse repeated rows, naming the two that coincide."""
        row = self.first_duplicate()
        if row is not None:
            site = self.indices[row]
            earlier = int((self.indices == site).all(1).nonzero()[0])
            _check.fail(
                "indices",
                "distinct",
                f"{site.tolist()} in rows {earlier} and {row}",
                "merge them with sparse3d.coalesce, or pass check=False: the lowest row answers",
            )


def _key(rule: str, geometry: Geometry, *more: int) -> Hashable:
    """Plain numbers: Dynamo of torch 2.7 looks up no key that holds an object."""
    numbers = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
    return rule, *numbers, *more


def edit_count(tensor: torch.Tensor) -> int:
    """The in-place edit counter; inference tensors have none."""
    return 0 if tensor.is_inference() else tensor._version


def lasting() -> AbstractContextManager[object]:
    """Maps outlive the call that builds them: inside, they are no inference tensors.

    A scene that was evaluated under `torch.inference_mode` may be trained on next.
    """
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return nullcontext()
    return torch.inference_mode(False)


def with_edit_count(indices: torch.Tensor) -> torch.Tensor:
    """The indices, copied where they are an inference tensor: edits in place would go unnoticed."""
    if torch.compiler.is_compiling() or not indices.is_inference():
        return indices
    with lasting():
        return indices.clone()
