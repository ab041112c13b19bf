"""Coordinate sets: table, look-up, unique rows.

A coordinate is a row `(batch, a_0, ..., a_{D-1})` of int32, D = 1..4. There is no packed key, hence
no limit on extent and no rule against negative positions.

*Order.* `coordinate_unique` lists distinct rows by batch id, then by first occurrence.
*Duplicates.* The lowest row answers look-ups. *Empty.* No rows give an empty table in which nothing
is found. *Determinism.* All three are exact integers, equal on every backend; only the layout of
the table is a backend's own.

Example:
    >>> import torch
    >>> from sparse3d.ops.coordinates import build_table, lookup
    >>> coords = torch.tensor([[0, 4], [0, 7], [0, 4]], dtype=torch.int32)
    >>> queries = torch.tensor([[0, 7], [0, 5], [0, 4]], dtype=torch.int32)
    >>> lookup(coords, build_table(coords), queries).tolist()
    [1, -1, 0]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch

from .. import _check
from .._registry import Op
from .order import key_order, order_keys

__all__ = ["build_table", "cells_of", "distinct", "lookup", "unique", "unique_sorted"]

_PACKED_LIMIT = 2**62


def _keys(coords: torch.Tensor, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One int64 key a row such that equal rows have equal keys; a query that matches no row may get
    -1."""
    reference, wanted = coords.long(), queries.long()
    low, high = reference.amin(0), reference.amax(0)
    extent = (high - low + 1).tolist()
    if math.prod(extent) < _PACKED_LIMIT:
        inside = ((wanted >= low) & (wanted <= high)).all(1)
        key, query = reference.new_zeros(len(reference)), wanted.new_zeros(len(wanted))
        for column, size in enumerate(extent):
            key = key * size + (reference[:, column] - low[column])
            query = query * size + (wanted[:, column] - low[column])
        return key, torch.where(inside, query, -1)
    return _ranked_keys(reference, wanted)


def _ranked_keys(coords: torch.Tensor, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys for sets whose bounding box has 2^62 cells or more: columns are folded in one by one and
    ranked."""
    key, query = coords.new_zeros(len(coords)), queries.new_zeros(len(queries))
    found = torch.ones(len(queries), dtype=torch.bool, device=queries.device)
    for column in range(coords.shape[1]):
        values, rank = torch.unique(coords[:, column], return_inverse=True)
        position, hit = _find(values, queries[:, column])
        pairs, key = torch.unique(key * len(values) + rank, return_inverse=True)
        query, known = _find(pairs, query * len(values) + position)
        found = found & hit & known
    return key, torch.where(found, query, -1)


def _find(ordered: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    position = torch.searchsorted(ordered, values.contiguous()).clamp_(max=len(ordered) - 1)
    return position, ordered[position] == values


def _table_reference(coords: torch.Tensor) -> torch.Tensor:
    """Sorted distinct keys and the lowest row of each: int64 [2, U]."""
    if len(coords) == 0:
        return coords.new_zeros((2, 0), dtype=torch.int64)
    key, _ = _keys(coords, coords[:0])
    ordered, row = torch.sort(key, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return torch.stack([ordered[first], row[first]])


def _table_fake(coords: torch.Tensor) -> torch.Tensor:
    size = torch.library.get_ctx().new_dynamic_size()
    return coords.new_empty((2, size), dtype=torch.int64)


def _lookup_reference(
    coords: torch.Tensor, table: torch.Tensor, queries: torch.Tensor
) -> torch.Tensor:
    """Binary search of each query's key."""
    if len(coords) == 0 or len(queries) == 0:
        return queries.new_full((len(queries),), -1)
    _, query = _keys(coords, queries)
    position, found = _find(table[0], query)
    return torch.where(found, table[1][position], -1).int()


def _lookup_fake(coords: torch.Tensor, table: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    return queries.new_empty((queries.shape[0],))


def _groups(coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """First row of each distinct coordinate in lexicographic order, and each row's place there."""
    if len(coords) == 0:
        empty = torch.zeros(0, dtype=torch.int64, device=coords.device)
        return empty, empty.clone()
    key, _ = _keys(coords, coords[:0])
    ordered, row = torch.sort(key, stable=True)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[1:] = ordered[1:] != ordered[:-1]
    group = torch.empty_like(row)
    group[row] = torch.cumsum(starts, 0) - 1
    return row[starts], group


def _unique_reference(coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """First row of each distinct coordinate, and for each row its place in that list."""
    first, group = _groups(coords)
    by_row = torch.argsort(first)
    order = by_row[torch.argsort(coords[first[by_row], 0], stable=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return first[order], place[group]


def _unique_fake(coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    size = torch.library.get_ctx().new_dynamic_size()
    return (
        coords.new_empty((size,), dtype=torch.int64),
        coords.new_empty((coords.shape[0],), dtype=torch.int64),
    )


coordinate_table = Op(
    "coordinate_table(Tensor coords) -> Tensor", reference=_table_reference, fake=_table_fake
)
coordinate_lookup = Op(
    "coordinate_lookup(Tensor coords, Tensor table, Tensor queries) -> Tensor",
    reference=_lookup_reference,
    fake=_lookup_fake,
)
coordinate_unique = Op(
    "coordinate_unique(Tensor coords) -> (Tensor, Tensor)",
    reference=_unique_reference,
    fake=_unique_fake,
)


def build_table(coords: torch.Tensor) -> torch.Tensor:
    """Index coordinate rows for `lookup`.

    Args:
        coords: int32 [N, 1 + D].

    Returns:
        An opaque tensor of the backend that built it, valid for these `coords` alone.

    Raises:
        TypeError: if `coords` is not an int32 tensor.
        ValueError: if its shape is not [N, 1 + D] with D = 1..4, or it has 2^31 rows or more.
    """
    _check.coordinates("coords", coords)
    _check.row_limit("coords", coords.shape[0])
    return cast(torch.Tensor, coordinate_table(coords))


def lookup(coords: torch.Tensor, table: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Row number of each query in `coords`.

    Args:
        coords: int32 [N, 1 + D].
        table: what `build_table(coords)` gave.
        queries: int32 [Q, 1 + D].

    Returns:
        int32 [Q], the lowest row with those coordinates, -1 where there is none.

    Raises:
        TypeError: if an argument is not an int32 tensor.
        ValueError: if shapes or devices do not fit together.
    """
    _check.coordinates("coords", coords)
    _check.coordinates("queries", queries)
    if coords.shape[1] != queries.shape[1]:
        _check.fail("queries", f"of {coords.shape[1]} columns as coords has", queries.shape[1])
    _check.same_device(coords=coords, table=table, queries=queries)
    return cast(torch.Tensor, coordinate_lookup(coords, table, queries))


def unique(coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct rows by batch id, then first occurrence.

    Args:
        coords: int32 [N, 1 + D].

    Returns:
        `first` int64 [U], the row of each distinct coordinate's first occurrence, and `inverse`
        int64 [N] with `coords[first][inverse] == coords`.

    Raises:
        TypeError: if `coords` is not an int32 tensor.
        ValueError: if its shape is not [N, 1 + D] with D = 1..4.
    """
    _check.coordinates("coords", coords)
    _check.row_limit("coords", coords.shape[0])
    _check.valued("coords", coords)
    return cast(tuple[torch.Tensor, torch.Tensor], coordinate_unique(coords))


def distinct(coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct rows by first occurrence alone, whatever their batch ids.

    Args:
        coords: int32 [N, 1 + D].

    Returns:
        As of `unique`.

    Raises:
        TypeError: as of `unique`.
        ValueError: as of `unique`.
    """
    first, inverse = unique(coords)
    order = order_keys(first)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return first[order], place[inverse]


def unique_sorted(coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct rows in ascending order, the first column counting most.

    Args:
        coords: int32 [N, 1 + D].

    Returns:
        As of `unique`.

    Raises:
        TypeError: as of `unique`.
        ValueError: as of `unique`.
    """
    _check.coordinates("coords", coords)
    _check.row_limit("coords", coords.shape[0])
    if not key_order.has_kernel(coords.device):
        return _groups(coords)
    first, inverse = unique(coords)
    order = torch.arange(len(first), device=coords.device)
    for column in reversed(range(coords.shape[1])):
        order = order[order_keys(coords[first[order], column])]
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    return first[order], place[inverse]


def cells_of(coords: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """The coarser cell that each row lies in: batch id, then floor(position / stride).

    Args:
        coords: int32 [N, 1 + D].
        stride: one entry an axis, > 0.

    Returns:
        int32 [N, 1 + D]; `coords` itself where every stride is 1.

    Raises:
        ValueError: if the strides are not D positive integers.
    """
    if len(stride) != coords.shape[1] - 1 or min(stride) < 1:
        _check.fail("stride", f"{coords.shape[1] - 1} integers > 0", list(stride))
    if set(stride) == {1}:
        return coords
    unit = coords.new_tensor(list(stride))
    cells = torch.div(coords[:, 1:], unit, rounding_mode="floor")
    return torch.cat([coords[:, :1], cells], 1)
