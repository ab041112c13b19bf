"""The plan of a convolution: output rows in an order that lets tiles skip the taps they lack.

Rows are sorted by the set of taps they have: Gray-code order, corner taps in the high bits. Nothing
is read on the host, unless pairs may repeat.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from ..metal import _sort
from ..ops.conv import conv_plan
from . import _triton_plan as kernels
from ._launcher import Launcher, Variant, aligned
from ._tiles import rows_a_tile

__all__ = ["Plan", "make", "tiles_of"]

_BLOCK, _PAIR_ROWS, _KEY_ROWS = 256, 128, 1024
_MOST_BITS = 31
"""Of a sort key; slots beyond share them."""

_count = Launcher(kernels.count_pairs)
_list = Launcher(kernels.list_pairs)
_enter = Launcher(kernels.enter_pairs)
_keys = Launcher(kernels.row_keys)
_build = Launcher(kernels.build_tiles)

_I32, _I64 = torch.int32, torch.int64
_ENTER = Variant((_I32, _I32, _I64, _I32), (_BLOCK,), 4)
_KEYS = {w: Variant((_I32, _I32, _I64, _I32), (_KEY_ROWS, 1 << w), 16) for w in range(1, 10)}
_BUILD = {bm: Variant((_I32, _I64, _I32, _I32, _I32, _I32), (bm,), bm // 32) for bm in (64, 128)}


class Plan(NamedTuple):
    """T tiles of BM rows with S slots each. int32; -1 where nothing is.

    rows [T * BM], inputs [T * S + 1, BM], taps [T * S + 1], filled [T] the entries in use of each
    tile, bounds int64 [K + 1] the map's splits on the device.
    """

    rows: torch.Tensor
    inputs: torch.Tensor
    taps: torch.Tensor
    filled: torch.Tensor
    bounds: torch.Tensor


def make(
    src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_out: int, distinct: bool
) -> Plan:
    """The plan of sums into dst; `distinct`: no two pairs of a tap share a dst."""
    taps, device = splits.shape[0] - 1, dst.device
    bounds = splits.to(device, non_blocking=True)
    table = _table(src, dst, bounds, num_out, taps)
    if not distinct:
        table = _with_repeats(src, dst, bounds, table)
    return tiles_of(table, bounds, taps)


def _table(
    src: torch.Tensor, dst: torch.Tensor, bounds: torch.Tensor, rows: int, slots: int
) -> torch.Tensor:
    """[rows, slots]: the input row of each output row and tap, -1 where there is none."""
    pairs, taps = dst.shape[0], bounds.shape[0] - 1
    table = torch.full((rows, slots), -1, dtype=torch.int32, device=dst.device)
    if pairs and rows:
        grid = (-(-pairs // _BLOCK), 1, 1)
        _enter(_ENTER, grid, (src, dst, bounds, table), (pairs, taps, slots), dst.get_device())
    return table


def _with_repeats(
    src: torch.Tensor, dst: torch.Tensor, bounds: torch.Tensor, table: torch.Tensor
) -> torch.Tensor:
    """The table, with further columns where pairs of a tap share an output row.

    Column l * K + t holds the l-th of tap t's pairs at a row, in ascending order of src.
    """
    rows, taps = table.shape
    tap = torch.repeat_interleave(bounds.diff(), output_size=dst.shape[0])
    cell = dst.long() * taps + tap
    if bool((table.view(-1)[cell] == src).all()):
        return table
    by_src = torch.argsort(src, stable=True)
    order = by_src[torch.argsort(cell[by_src], stable=True)]
    ordered = cell[order]
    place = torch.arange(len(order), device=dst.device)
    new = torch.ones_like(place, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    layer = place - torch.where(new, place, 0).cummax(0).values
    wide = table.new_full((rows, taps * (int(layer.max()) + 1)), -1)
    wide[dst[order].long(), layer * taps + tap[order]] = src[order]
    return wide


def tiles_of(
    table: torch.Tensor, bounds: torch.Tensor, taps: int, rows_each: int | None = None
) -> Plan:
    """Sort the rows of a table [M, S] and cut them into tiles; `rows_each` forces 64 or 128."""
    (rows, slots), device, index = table.shape, table.device, table.get_device()
    bm = rows_each or rows_a_tile(rows)
    tiles = -(-rows // bm)
    sorted_rows = _in_order(table) if rows else None  # first: the GPU sorts while the host goes on
    made = Plan(
        torch.empty(tiles * bm, dtype=torch.int32, device=device),
        torch.empty((tiles * slots + 1, bm), dtype=torch.int32, device=device),
        torch.empty(tiles * slots + 1, dtype=torch.int32, device=device),
        torch.empty(tiles, dtype=torch.int32, device=device),
        bounds,
    )
    if sorted_rows:
        items, half = sorted_rows
        lists = (table, items, made.rows, made.inputs, made.taps, made.filled)
        _build(_BUILD[bm], (tiles, 1, 1), lists, (half, rows, taps, slots), index)
    else:
        made.inputs.fill_(-1)
        made.taps.fill_(-1)
    return made


def _in_order(table: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Items whose low words number the rows of a table by their taps, and the half they are in."""
    (rows, slots), device = table.shape, table.device
    by = _sort.passes(rows, min(slots, _MOST_BITS))
    items = torch.empty(2 * rows, dtype=_I64, device=device)
    counts = torch.empty(by.entries, dtype=_I32, device=device)
    tensors = (table, ranks(slots, device), items, counts)
    scalars = (rows, slots, by.each, by.number)
    _keys(_KEYS[by.width], (by.blocks, 1, 1), tensors, scalars, table.get_device())
    return items, _sort.run(items, counts, rows, by)


@cache
def ranks(slots: int, device: torch.device) -> torch.Tensor:
    """Bit of each slot in the sort key, int32. Of 27 taps the centre is lowest, then faces, edges,
    corners: who has a corner neighbour usually has the faces and edges on the way, so that corners
    split rows best. Else by number; slots beyond the bits share them."""
    rank = torch.arange(slots)
    if slots == 27:
        far = sum((rank // step % 3 - 1).abs() for step in (9, 3, 1))
        rank[torch.argsort(torch.as_tensor(far), stable=True)] = torch.arange(slots)
    elif slots > _MOST_BITS:
        rank = rank * _MOST_BITS // slots
    return rank.int().to(device)


@cache
def _unlisted(taps: int, device: torch.device) -> torch.Tensor:
    """The bounds of pairs that nobody listed."""
    return torch.zeros(taps + 1, dtype=_I64, device=device)


def _of_table(table: torch.Tensor) -> list[torch.Tensor]:
    """The plan of a neighbour table and, where gradients are recorded, its pairs: src and dst
    with room for all."""
    (rows, taps), device = table.shape, table.device
    if not torch.is_grad_enabled():
        return list(tiles_of(table, _unlisted(taps, device), taps))
    blocks, width = -(-rows // _PAIR_ROWS), 1 << (taps - 1).bit_length()
    counts = torch.zeros(taps * blocks, dtype=_I32, device=device)
    src = torch.empty(taps * rows, dtype=_I32, device=device)
    dst = torch.empty_like(src)
    grid, scalars, index = (blocks, 1, 1), (rows, taps, blocks), table.get_device()
    constants = (_PAIR_ROWS, width)
    if rows:
        _count(Variant((_I32, _I32), constants, 4), grid, (table, counts), scalars, index)
    ends = counts.cumsum(0)
    bounds = torch.nn.functional.pad(ends.view(taps, blocks)[:, -1], (1, 0)) if rows else ends
    if rows:
        kinds = (_I32, _I64, _I32, _I32)
        _list(Variant(kinds, constants, 4), grid, (table, ends, src, dst), scalars, index)
    return [*tiles_of(table, bounds, taps), src, dst]


def is_identity(src: torch.Tensor, dst: torch.Tensor, taps: int, num_in: int, num_out: int) -> bool:
    """Whether one tap pairs every row with itself: such a map is one tensor twice."""
    return taps == 1 and src.shape[0] == num_in == num_out and src.data_ptr() == dst.data_ptr()


@conv_plan.kernel("cuda")
def _conv_plan(
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    num_in: int,
    num_out: int,
    mirrored: bool,
    distinct: bool = False,
) -> list[torch.Tensor]:
    taps = splits.shape[0] - 1
    if src.ndim == 2:
        return _of_table(src)
    if is_identity(src, dst, taps, num_in, num_out):
        return []
    return list(
        make(
            aligned(src.contiguous()),
            aligned(dst.contiguous()),
            splits,
            num_out,
            mirrored or distinct,
        )
    )
