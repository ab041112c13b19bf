"""Coordinate table, look-up and unique rows on Metal."""

from typing import Any

import torch

from ..ops.coordinates import coordinate_lookup, coordinate_table, coordinate_unique
from . import _scan, _shader, _sort

_INT32_MAX = 2**31 - 1
_ROOMY = 1 << 20
"""Rows up to which memory is no matter."""


def kernels_for(stem: str, columns: int) -> Any:
    """A library for coordinates of this many columns."""
    return _shader.library(stem, SP_COLS=columns)


def capacity(rows: int) -> int:
    """Slots for `rows` coordinates: a power of two, at most half full."""
    _shader.rows_fit("table slots", 2 * rows)
    return max(32, 1 << (2 * rows - 1).bit_length())


def roomy(rows: int) -> int:
    """Slots for a table that is asked often. Of 27 neighbours each of 250,224 voxels on a sphere, a
    look-up reads 1.92 slots where 0.48 of them are taken, and 1.11 where 0.12 are."""
    return capacity(4 * rows if rows <= _ROOMY else rows)


def empty_table(slots: int, device: torch.device) -> torch.Tensor:
    """A table in which nothing is found."""
    return torch.full((slots,), -1, dtype=torch.int32, device=device)


@coordinate_table.kernel("metal", "cuda")
def table(coords: torch.Tensor) -> torch.Tensor:
    """Slots that hold the lowest row of each coordinate."""
    coords, n = coords.contiguous(), coords.shape[0]
    slots = empty_table(roomy(n), coords.device)
    kernels = kernels_for("coordinates", coords.shape[1])
    _shader.each(kernels, "sp_table_insert", coords, slots, n, slots.shape[0] - 1, threads=n)
    return slots


@coordinate_lookup.kernel("metal", "cuda")
def _lookup(coords: torch.Tensor, table: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    queries, q = queries.contiguous(), queries.shape[0]
    rows = torch.empty(q, dtype=torch.int32, device=queries.device)
    kernels = kernels_for("coordinates", queries.shape[1])
    arguments = (coords.contiguous(), table, queries, rows, q, table.shape[0] - 1)
    _shader.each(kernels, "sp_lookup", *arguments, threads=q)
    return rows


def _batch_range(coords: torch.Tensor) -> tuple[int, int]:
    """Lowest and highest batch id of at least one row."""
    start = [_INT32_MAX, -_INT32_MAX - 1]
    status = torch.tensor(start, dtype=torch.int32, device=coords.device)
    n = coords.shape[0]
    kernels = kernels_for("coordinates", coords.shape[1])
    # Whole simdgroups: their lanes reduce together.
    _shader.each(kernels, "sp_batch_range", coords, status, n, threads=-(-n // 32) * 32)
    lowest, highest = status.tolist()
    return lowest, highest


def by_batch(coords: torch.Tensor, rows: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """`rows` stably sorted by batch id, and `place[row]` brought up to date in the same way."""
    n, (lowest, highest) = rows.numel(), _batch_range(coords)
    keys = torch.empty_like(rows)
    kernels = kernels_for("coordinates", coords.shape[1])
    _shader.each(kernels, "sp_batch_keys", coords, rows, keys, n, lowest, threads=n)
    _, moved = _sort.sort(keys, (highest - lowest).bit_length())
    first = torch.empty_like(rows)
    _shader.each(kernels, "sp_place", rows, moved, first, place, n, threads=n)
    return first


def distinct(
    coords: torch.Tensor, table: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(first row of each distinct coordinate, owner of each row, place of each owner), all
    int32."""
    owner = _lookup(coords, table, coords)
    first, place, falls = _scan.owners(owner, coords)
    if falls:
        first = by_batch(coords, first, place)
    return first, owner, place


def gather_rows(coords: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """`coords[rows]` for int32 rows."""
    out = coords.new_empty((rows.shape[0], coords.shape[1]))
    kernels = kernels_for("coordinates", coords.shape[1])
    _shader.each(kernels, "sp_gather_rows", coords, rows, out, rows.shape[0], threads=rows.shape[0])
    return out


@coordinate_unique.kernel("metal", "cuda")
def _unique(coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    coords, n = coords.contiguous(), coords.shape[0]
    first, owner, place = distinct(coords, table(coords))
    inverse = torch.empty(n, dtype=torch.int64, device=coords.device)
    kernels = kernels_for("coordinates", coords.shape[1])
    _shader.each(kernels, "sp_inverse", owner, place, inverse, n, threads=n)
    return first.long(), inverse
