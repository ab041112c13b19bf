"""Coordinate table, look-up and unique rows."""

from __future__ import annotations

import ctypes

import torch

from ..ops.coordinates import coordinate_lookup, coordinate_table, coordinate_unique
from ._library import address, call, library, threads
from ._memory import empty


@coordinate_table.kernel("cpu")
def _table(coords: torch.Tensor) -> torch.Tensor:
    coords = coords.contiguous()
    rows, columns = coords.shape
    table = empty((library.s3d_table_words(rows),), torch.int32)
    call("s3d_coordinate_table", threads(), address(coords), rows, columns - 1, address(table))
    return table


@coordinate_lookup.kernel("cpu")
def _lookup(coords: torch.Tensor, table: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    coords, queries = coords.contiguous(), queries.contiguous()
    rows, columns = coords.shape
    out = torch.empty(queries.shape[0], dtype=torch.int32)
    call(
        "s3d_coordinate_lookup",
        threads(),
        address(coords),
        rows,
        columns - 1,
        address(table),
        address(queries),
        queries.shape[0],
        address(out),
    )
    return out


@coordinate_unique.kernel("cpu")
def _unique(coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    coords = coords.contiguous()
    rows, columns = coords.shape
    first, inverse = torch.empty((2, rows), dtype=torch.int64).unbind()
    count = ctypes.c_int64()
    call(
        "s3d_coordinate_unique",
        threads(),
        address(coords),
        rows,
        columns - 1,
        address(first),
        address(inverse),
        ctypes.byref(count),
    )
    return first[: count.value].clone(), inverse.clone()
