"""Bytes and arithmetic of the Metal convolution's kernels, from tile lists alone.

What each kernel asks device memory for, lanes of a simdgroup merged, as the emulator's meter counts
it; tests/metal/test_traffic.py holds one against the other. `filled` are bytes that PyTorch writes
and reads around the kernels: zeroed sums, conversions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sparse3d.metal import conv
from sparse3d.metal._plan import TILE, Plan

DTYPES = {2: torch.float16, 4: torch.float32}
CHUNK = 512
"""Pairs of a partial sum of the weight gradient."""


@dataclass(frozen=True)
class Layer:
    """Channels that a launch sums over and makes, and the size of an element. The gradient to the
    input is the layer with them swapped."""

    cin: int
    cout: int
    size: int

    @property
    def macros(self) -> dict[str, Any]:
        return conv.macros(conv._Layer(self.cin, self.cout, 1, 1, False), DTYPES[self.size])

    @property
    def columns(self) -> int:
        """Output channels a threadgroup makes."""
        return int(self.macros["SP_BN"])

    @property
    def tile_rows(self) -> int:
        return int(self.macros["SP_BM"])

    @property
    def passes(self) -> int:
        """Threadgroups across the channels made."""
        return -(-self.cout // self.columns)

    @property
    def simdgroups(self) -> int:
        return conv.threads(self.macros) // 32

    @property
    def macs_a_row(self) -> int:
        """Issued for a row of a fragment: channels are filled up to whole steps and columns."""
        step = int(self.macros["SP_BK"])
        return -(-self.cin // step) * step * self.passes * self.columns

    @property
    def swapped(self) -> Layer:
        return Layer(self.cout, self.cin, self.size)


@dataclass(frozen=True)
class Cost:
    """Device bytes of kernels, multiply-accumulates issued, bytes of PyTorch's own around them."""

    nbytes: float
    macs: int
    filled: int = 0

    @property
    def total(self) -> float:
        return self.nbytes + self.filled


def fragments(counts: np.ndarray) -> int:
    """Rows of whole fragments of 8 that hold so many rows each."""
    return int((-(-counts // 8)).sum()) * 8


def tile_counts(neighbours: np.ndarray, rows: np.ndarray, tile_rows: int) -> np.ndarray:
    """Pairs of each (tile, tap), from the neighbour table [M, K] and the plan's row order."""
    rows = rows.reshape(-1, tile_rows)
    present = np.where(rows[..., None] >= 0, neighbours[rows] >= 0, False)
    return present.sum(1)


def listed_counts(plan: Plan, taps: int, tile_rows: int) -> np.ndarray:
    """The same from the plan's lists."""
    pairs, first_half = plan.begins.diff().numpy(), (plan.slots >> 16).numpy()
    tile = np.repeat(np.arange(plan.tiles), plan.starts.diff().numpy())
    tap = (plan.slots & 0xFFFF).numpy()
    parts = [pairs] if tile_rows == TILE else [first_half, pairs - first_half]
    counts = np.zeros((plan.tiles, len(parts), taps), np.int64)
    for part, found in enumerate(parts):
        counts[tile, part, tap] = found
    return counts.reshape(-1, taps)


def minimum_bytes(counts: np.ndarray, num_out: int, layer: Layer) -> int:
    """The least a tiled kernel can move: gathered rows, each present tap's weight once a tile,
    outputs, map entries."""
    pairs, slots = int(counts.sum()), int((counts > 0).sum())
    elements = pairs * layer.cin + slots * layer.cin * layer.cout + num_out * layer.cout
    return elements * layer.size + 4 * pairs


def bound_bytes(pairs: int, num_in: int, num_out: int, taps: int, layer: Layer) -> int:
    """The layer's bound: every input, output, weight and pair once."""
    elements = num_in * layer.cin + num_out * layer.cout + taps * layer.cin * layer.cout
    return elements * layer.size + 4 * pairs


def predicted(counts: np.ndarray, num_out: int, layer: Layer) -> Cost:
    """`sp_conv`, the output-stationary dataflow."""
    pairs, slots = int(counts.sum()), int((counts > 0).sum())
    parts, groups = TILE // layer.tile_rows, len(counts)
    listed = parts * int((counts.reshape(-1, parts, counts.shape[1]).sum(1) > 0).sum())
    elements = (
        pairs * layer.cin * layer.passes + slots * layer.cin * layer.cout + num_out * layer.cout
    )
    # Slots and the bounds of their pairs once a simdgroup; pairs and rows once a threadgroup.
    of_slot = (4 + 8) if parts == 1 else (8 + 6)
    lists = 5 * pairs + layer.simdgroups * (of_slot * listed + 8 * groups)
    lists += 4 * layer.tile_rows * groups
    macs = fragments(counts) * layer.macs_a_row
    return Cost(elements * layer.size + layer.passes * lists, macs)


def few_channels(plan: Plan, num_out: int, layer: Layer) -> Cost:
    """`sp_conv_small`: a simdgroup makes 32 channels of half a tile, and reads an input row once,
    however many taps it has there."""
    slots, pairs, columns = plan.slots.numel(), plan.sources.numel(), -(-layer.cout // 32)
    tile = torch.repeat_interleave(torch.arange(plan.tiles), plan.starts.diff().long())
    tile = torch.repeat_interleave(tile, plan.begins.diff().long())
    half = 2 * tile + (plan.places >= TILE // 2)
    rows = torch.unique((half << 32) + plan.sources).numel()
    elements = rows * columns * layer.cin + num_out * layer.cout
    elements += 2 * slots * layer.cin * layer.cout
    # Of a slot, each half reads the word and two bounds, of which the first half's are one.
    lists = (2 * 4 + 4 + 8) * slots + (2 * 8 + 4 * TILE) * plan.tiles + 5 * pairs
    return Cost(elements * layer.size + columns * lists, pairs * layer.cin * 32 * columns)


def by_taps(splits: np.ndarray, num_out: int, mirrored: bool, layer: Layer) -> Cost:
    """`sp_conv_tap` for every tap, or pair of mirrored taps, and `sp_conv_finish`."""
    counts, high = np.diff(splits), layer.tile_rows
    taps = len(counts)
    turns = [[t] for t in range(taps)]
    if mirrored:
        turns = [[t, taps - 1 - t] for t in range(taps // 2)]
    tiles = sum(len(turn) * int(-(-max(counts[turn]) // high)) for turn in turns)
    listed = counts[[t for turn in turns for t in turn]]
    pairs = int(listed.sum())
    whole, rest = np.divmod(listed, high)
    rows = int(whole.sum()) * high + fragments(rest)
    weight = layer.cin * layer.cout * layer.size
    tap_bytes = pairs * (layer.cin * layer.passes * layer.size + 8 * layer.passes)
    tap_bytes += tiles * weight + 8 * pairs * layer.cout
    last = finish(num_out, mirrored, 1 + mirrored, layer)
    sums = 4 * (1 + mirrored) * num_out * layer.cout
    return Cost(tap_bytes + last.nbytes, rows * layer.macs_a_row + last.macs, sums)


def finish(num_out: int, multiplies: bool, sums: int, layer: Layer) -> Cost:
    """`sp_conv_finish`: adds up `sums` of every element, and where it `multiplies` the product of
    one tap whose rows are the inputs as they stand."""
    made = num_out * layer.cout
    nbytes, macs = made * layer.size + 4 * sums * made, 0
    if multiplies:
        tiles = -(-num_out // layer.tile_rows)
        nbytes += num_out * layer.cin * layer.passes * layer.size
        nbytes += tiles * layer.cin * layer.cout * layer.size
        macs = fragments(np.array([num_out])) * layer.macs_a_row
    return Cost(nbytes, macs)


def weight_gradient(splits: np.ndarray, layer: Layer) -> Cost:
    """`sp_weight_grad` or its variant for few channels, and `sp_weight_grad_sum`."""
    counts, (inner, outer) = np.diff(splits), (layer.cin, layer.cout)
    pairs, of_tap = int(counts.sum()), -(-counts // CHUNK)
    chunks, weight = int(of_tap.sum()), inner * outer
    step = max(1, conv._PARTIAL_BYTES // (4 * weight))
    if min(inner, outer) < conv._SMALL:
        simdgroups = -(-weight // 32)
        # A simdgroup makes 32 elements in a row of [outer, inner].
        rows, columns = max(1, 32 // inner), min(inner, 32)
        nbytes = pairs * simdgroups * ((rows + columns) * layer.size + 8) + 8 * chunks * simdgroups
        macs = pairs * weight
    else:
        wide = conv.fewest(conv._GRAD_OUT, outer), conv.fewest(conv._GRAD_IN, inner)
        across, down = -(-inner // wide[1]), -(-outer // wide[0])
        simdgroups = wide[0] * wide[1] // 512
        nbytes = pairs * (inner * down + outer * across) * layer.size
        nbytes += across * down * (8 * pairs + 8 * simdgroups * chunks)
        whole, rest = np.divmod(counts, CHUNK)
        deep = 32 if layer.size == 2 else 16
        rows = int(whole.sum()) * CHUNK + int((-(-rest // deep)).sum()) * deep
        macs = rows * across * down * wide[0] * wide[1]
    # Partial sums out and in; of each batch of them, the taps that it has sums of.
    batches, bounds = [], np.concatenate([[0], np.cumsum(of_tap)])
    for first in range(0, chunks, step):
        batches.append(int(((bounds[1:] > first) & (bounds[:-1] < first + step)).sum()))
    simds = -(-weight // 32)
    nbytes += 8 * weight * chunks + 8 * weight * sum(batches)
    nbytes += len(batches) * len(counts) * simds * 8
    filled = 4 * weight * len(counts) + (6 * weight * len(counts) if layer.size == 2 else 0)
    return Cost(nbytes, macs, filled)


def naive_bytes(pairs: int, num_out: int, taps: int, layer: Layer) -> float:
    """One thread an output scalar: each simdgroup of 32 channels reads a row and its weights for
    itself."""
    elements = pairs * layer.cin * layer.cout * (1 + 1 / 32) + num_out * layer.cout
    return elements * layer.size + 4 * num_out * taps * layer.cout / 32
