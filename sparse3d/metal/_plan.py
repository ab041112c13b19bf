"""The plan of a convolution: what the kernels read instead of the pairs."""

from typing import NamedTuple

import torch

from ..ops._conv_reference import CHUNK
from ..ops.conv import conv_plan
from . import _scan, _shader, _sort

TILE = 64
BLOCK_ROWS = 1 << 17
"""Rows sorted among themselves. A guess at what fits an Apple system cache; no Mac ran it."""

_MASK_BITS = 27
_KEY_BITS = 32
_MOST_LAYERS = 64


class Plan(NamedTuple):
    """Tiles of output rows, and chunks of the weight gradient. int32 but `places` and `facts`.

    Slots `starts[tile]:starts[tile + 1]` are the taps present in a tile; slot s holds the pairs
    `begins[s]:begins[s + 1]`, each an input row and a row of the tile.
    """

    starts: torch.Tensor
    slots: torch.Tensor
    begins: torch.Tensor
    sources: torch.Tensor
    places: torch.Tensor
    rows: torch.Tensor
    chunks: torch.Tensor
    tap_chunks: torch.Tensor
    facts: torch.Tensor

    @property
    def tiles(self) -> int:
        return self.starts.numel() - 1

    @property
    def mirrored(self) -> bool:
        """Tap K - 1 - t is tap t with the roles swapped, and the centre tap is the identity."""
        return bool(self.facts[0])

    @property
    def repeats(self) -> bool:
        """Two pairs of a tap meet in one output row."""
        return bool(self.facts[1])


def chunks(splits: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """First pair of every chunk of at most 512 pairs of a tap, and first chunk of every tap."""
    counts = (splits.diff() + CHUNK - 1) // CHUNK
    tap_chunks = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    tap = torch.repeat_interleave(torch.arange(counts.numel()), counts)
    first = splits[tap] + (torch.arange(tap.numel()) - tap_chunks[tap]) * CHUNK
    first = torch.cat([first, splits[-1:]])
    return first.int().to(device), tap_chunks.int().to(device)


def entries(
    dst: torch.Tensor, splits: torch.Tensor, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Table [layers * K, rows] of pair numbers (-1: none); whether layers > 1, as `Plan.facts`.

    Layers after the first hold pairs of a tap that meet in one output row, in ascending order.
    """
    kernels, taps, pairs = _shader.library("conv_plan"), splits.numel() - 1, dst.numel()
    _shader.rows_fit("taps times output rows", taps * rows)
    on_device = splits.to(dst.device)
    layers = torch.zeros_like(dst)
    tables: list[torch.Tensor] = []
    left = torch.zeros(1, dtype=torch.int32, device=dst.device)
    for layer in range(_MOST_LAYERS):
        table = torch.full((taps, rows), -1, dtype=torch.int32, device=dst.device)
        enter = (dst, on_device, layers, table, pairs, taps, rows, layer)
        _shader.each(kernels, "sp_plan_enter", *enter, threads=pairs)
        left.zero_()
        displace = (dst, on_device, layers, table, left, pairs, taps, rows, layer)
        _shader.each(kernels, "sp_plan_displace", *displace, threads=pairs)
        tables.append(table)
        if int(left) == 0:
            break
    else:
        raise RuntimeError(
            f"a tap must not pair one row more than {_MOST_LAYERS} times on Metal; merge repeated "
            "coordinates with sparse3d.coalesce"
        )
    facts = torch.tensor([0, int(len(tables) > 1)])
    return (tables[0] if len(tables) == 1 else torch.cat(tables)), facts


def row_keys_layout(counts: list[int], rows: int) -> tuple[list[int], int, int]:
    """Mask bit of each tap (-1: not used), number of bits, and rows a block.

    The rarest taps take the high bits, so that they split the order first.
    """
    by_count = sorted(range(len(counts)), key=lambda t: (-counts[t], t))
    used = [t for t in by_count if counts[t]][-_MASK_BITS:]
    bit_of = [-1] * len(counts)
    for bit, tap in enumerate(used):
        bit_of[tap] = bit
    bits = len(used)
    most_blocks = 1 << (_KEY_BITS - bits)
    return bit_of, bits, max(BLOCK_ROWS, -(-rows // most_blocks))


def _row_order(table: torch.Tensor, splits: torch.Tensor, rows: int) -> torch.Tensor:
    counts = splits.diff().tolist()
    bit_of, bits, block = row_keys_layout(counts, rows)
    keys = torch.empty(rows, dtype=torch.int32, device=table.device)
    bit_list = torch.tensor(bit_of, dtype=torch.int32, device=table.device)
    arguments = (table, bit_list, keys, len(counts), rows, bits, block)
    _shader.each(_shader.library("conv_plan"), "sp_plan_keys", *arguments, threads=rows)
    blocks = -(-rows // block)
    _, order = _sort.sort(keys, bits + (blocks - 1).bit_length())
    return order


def make(
    src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_out: int, mirrored: bool
) -> Plan:
    """The plan for sums into dst; needs at least one pair."""
    device, pairs = dst.device, dst.numel()
    table, facts = entries(dst, splits, num_out)
    facts[0] = int(mirrored and not facts[1])
    kernels, taps, layers = _shader.library("conv_plan"), splits.numel() - 1, table.shape[0]
    order = _row_order(table, splits, num_out)
    tiles = -(-num_out // TILE)
    starts = torch.zeros(tiles + 1, dtype=torch.int32, device=device)
    pair_starts = torch.zeros_like(starts)
    arguments = (table, order, starts, pair_starts, layers, num_out)
    _shader.groups(kernels, "sp_plan_count", *arguments, count=(tiles,), size=32)
    _scan.scan(starts)
    _scan.scan(pair_starts)
    slots = torch.empty(int(starts[-1:].cpu()), dtype=torch.int32, device=device)
    begins = torch.empty(slots.numel() + 1, dtype=torch.int32, device=device)
    sources = torch.empty_like(dst)
    places = torch.empty(pairs, dtype=torch.uint8, device=device)
    rows = torch.empty(tiles * TILE, dtype=torch.int32, device=device)
    inputs = (table, order, src, starts, pair_starts)
    outputs = (slots, begins, sources, places, rows)
    _shader.groups(
        kernels, "sp_plan_fill", *inputs, *outputs, layers, taps, num_out, count=(tiles,), size=32
    )
    return Plan(starts, slots, begins, sources, places, rows, *chunks(splits, device), facts)


@conv_plan.kernel("metal")
def _conv_plan(
    src: torch.Tensor,
    dst: torch.Tensor,
    splits: torch.Tensor,
    num_in: int,
    num_out: int,
    mirrored: bool,
    distinct: bool = False,
) -> list[torch.Tensor]:
    if dst.numel() == 0:
        return []
    return list(make(src.contiguous(), dst.contiguous(), splits, num_out, mirrored))
