"""Kernel maps: found natively, then copied into tensors of the right size."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from ..ops.kernel_map import (
    CreatedPairs,
    Pairs,
    kernel_map_floor,
    kernel_map_footprint,
    kernel_map_given,
    kernel_map_neighbours,
    kernel_map_submanifold,
)
from ._library import address, call, library, longs, path, threads
from ._memory import empty


def _take(handle: ctypes.c_void_p, taps: int, columns: int) -> CreatedPairs:
    """The finished map; `out_coords` has no rows unless `columns` are asked for."""
    pairs, rows = ctypes.c_int64(), ctypes.c_int64()
    library.s3d_map_sizes(handle, ctypes.byref(pairs), ctypes.byref(rows))
    try:
        out_coords = torch.empty((rows.value if columns else 0, columns), dtype=torch.int32)
        src, dst = (empty((pairs.value,), torch.int32) for _ in range(2))
        splits = torch.empty(taps + 1, dtype=torch.int64)
    except BaseException:
        library.s3d_map_free(handle)
        raise
    created = address(out_coords) if columns else None
    call("s3d_map_take", threads(), handle, created, address(src), address(dst), address(splits))
    return out_coords, src, dst, splits


def _build(
    name: str, coords: torch.Tensor, kernel_size: Sequence[int], created: bool, *args: Any
) -> CreatedPairs:
    handle = ctypes.c_void_p()
    rows, columns = coords.shape
    call(name, threads(), path(), address(coords), rows, columns - 1, *args, ctypes.byref(handle))
    taps = 1
    for size in kernel_size:
        taps *= size
    return _take(handle, taps, columns if created else 0)


@kernel_map_submanifold.kernel("cpu")
def _submanifold(
    coords: torch.Tensor,
    table: torch.Tensor | None,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
) -> Pairs:
    coords = coords.contiguous()
    args = (address(table), longs(kernel_size), longs(dilation))
    return _build("s3d_map_submanifold", coords, kernel_size, False, *args)[1:]


# Look-ups are native; what is between them is small.
kernel_map_neighbours.kernel("cpu")(kernel_map_neighbours.reference)


@kernel_map_given.kernel("cpu")
def _given(
    coords: torch.Tensor,
    table: torch.Tensor,
    out_coords: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Pairs:
    coords, out_coords = coords.contiguous(), out_coords.contiguous()
    lists = (longs(v) for v in (kernel_size, stride, padding, dilation))
    args = (address(table), address(out_coords), out_coords.shape[0], *lists)
    return _build("s3d_map_given", coords, kernel_size, False, *args)[1:]


@kernel_map_footprint.kernel("cpu")
def _footprint(
    coords: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out_shape: Sequence[int],
    transposed: bool,
) -> CreatedPairs:
    coords = coords.contiguous()
    lists = (longs(v) for v in (kernel_size, stride, padding, dilation))
    args = (*lists, longs(out_shape) if out_shape else None, int(transposed))
    return _build("s3d_map_footprint", coords, kernel_size, True, *args)


@kernel_map_floor.kernel("cpu")
def _floor(
    coords: torch.Tensor,
    table: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> CreatedPairs:
    coords = coords.contiguous()
    lists = (longs(v) for v in (kernel_size, stride, padding, dilation))
    return _build("s3d_map_floor", coords, kernel_size, True, address(table), *lists)
