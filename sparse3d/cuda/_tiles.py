"""Tile choices, measured once and looked up: nothing is tuned when a model runs.

Read off `python bench/bench_gpu.py --sweep` on one H200; docs/numerics.md says what float32 is.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

__all__ = ["ConvTile", "GradTile", "conv_tile", "grad_tile", "rows_a_tile"]

BUSY = 264
"""Programs that keep the multiprocessors busy: two for each of 132."""

LARGE = 1 << 17
"""Output rows from which tiles of 128 beat 64."""


WHOLE = 200 << 10
"""Bytes of shared memory that a tile of 128 x 256 takes. It reads a quarter less than two of 128 x
128: 0.715 against 0.800 ms for 256 channels on the shell, one H200."""


class ConvTile(NamedTuple):
    """Output channels and input channels a step, warps, pipeline stages, shares of the taps."""

    bn: int
    bk: int
    warps: int
    stages: int
    split: int


class GradTile(NamedTuple):
    """Output channels, input channels, pairs a step, warps, stages, parts of a tap's pairs."""

    bo: int
    bi: int
    bp: int
    warps: int
    stages: int
    parts: int


def rows_a_tile(rows: int) -> int:
    """Output rows of a tile, for all layers over one plan."""
    return 128 if rows >= LARGE else 64


def _power(n: int, low: int, high: int) -> int:
    return max(low, min(high, 1 << (n - 1).bit_length()))


@cache
def conv_tile(
    tiles: int,
    rows: int,
    c_in: int,
    c_out: int,
    groups: int,
    terms: int,
    shared: int = 0,
) -> ConvTile:
    """The tile of one group's channels over `tiles` tiles of `rows` rows each, on a GPU whose
    blocks may have `shared` bytes of shared memory."""
    if rows == 128 and c_out % 256 == 0 and c_in % 64 == 0 and terms == 1 and shared >= WHOLE:
        return ConvTile(256, 64, 8, 4, 1)
    bk = 64 if c_in % 64 == 0 and terms == 1 else 32 if c_in >= 32 else 16
    bn = _power(c_out, 16, 128)
    split = 1
    while tiles * -(-c_out // bn) * groups * split < BUSY and split < 4:
        split *= 2
    return ConvTile(bn, bk, 8 if rows * bn >= 128 * 128 else 4, 3, split)


@cache
def grad_tile(rows: int, taps: int, c_in: int, c_out: int, groups: int, terms: int) -> GradTile:
    """The tile of one group's weight gradient; `rows` is the most pairs that a tap has."""
    bo, bi = _power(c_out, 16, 128), _power(c_in, 16, 128)
    blocks = -(-c_out // bo) * -(-c_in // bi) * groups * taps
    # Wide tiles fill a multiprocessor sooner; their parts cost more memory and time to add.
    wanted = 6 if bo * bi <= 64 * 64 else 3
    parts = max(1, min(max(-(-wanted * BUSY // blocks), 16), -(-rows // 1024)))
    if terms == 1:  # never slower than 8 warps in two sweeps on the shell, one H200
        return GradTile(bo, bi, 64, 4, 3, parts)
    return GradTile(bo, bi, 32, 8 if bo * bi >= 128 * 128 else 4, 3, parts)
