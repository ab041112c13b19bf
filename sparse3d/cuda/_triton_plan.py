"""Triton kernels that make a plan: pairs into a table, rows in order of their taps, tiles of them.

A *slot* is a place in a row of the table. Slot s belongs to tap s % K; there are K slots unless two
pairs of a tap meet in one output row.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["pairs", "taps", "slots"])
def enter_pairs(src, dst, bounds, table, pairs, taps, slots, BLOCK: tl.constexpr):
    """table[dst, tap] = src for every pair; the table is filled with -1 before."""
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = pair < pairs
    tap = tl.zeros([BLOCK], tl.int32)
    for t in range(1, taps):
        tap += (tl.load(bounds + t) <= pair).to(tl.int32)
    row = tl.load(dst + pair, mask=inside, other=0).to(tl.int64)
    tl.store(table + row * slots + tap, tl.load(src + pair, mask=inside, other=0), mask=inside)


@triton.jit(do_not_specialize=["rows", "taps", "blocks"])
def count_pairs(table, counts, rows, taps, blocks, BLOCK: tl.constexpr, TAPS: tl.constexpr):
    """counts[tap, block]: entries of a table [rows, taps] that are not -1, by blocks of rows."""
    block = tl.program_id(0)
    row = block * BLOCK + tl.arange(0, BLOCK)
    tap = tl.arange(0, TAPS)
    inside = (row < rows)[:, None] & (tap < taps)[None, :]
    at = row.to(tl.int64)[:, None] * taps + tap[None, :]
    there = (tl.load(table + at, mask=inside, other=-1) >= 0).to(tl.int32)
    tl.store(counts + tap * blocks + block, tl.sum(there, 0), mask=tap < taps)


@triton.jit(do_not_specialize=["rows", "taps", "blocks"])
def list_pairs(table, ends, src, dst, rows, taps, blocks, BLOCK: tl.constexpr, TAPS: tl.constexpr):
    """The entries tap by tap, rows ascending; `ends` are the inclusive sums of the counts."""
    block = tl.program_id(0)
    row = block * BLOCK + tl.arange(0, BLOCK)
    tap = tl.arange(0, TAPS)
    inside = (row < rows)[:, None] & (tap < taps)[None, :]
    at = row.to(tl.int64)[:, None] * taps + tap[None, :]
    source = tl.load(table + at, mask=inside, other=-1)
    there = (source >= 0).to(tl.int32)
    before = tap * blocks + block - 1
    start = tl.load(ends + before, mask=(tap < taps) & (before >= 0), other=0)
    place = start[None, :] + tl.cumsum(there, 0) - 1
    tl.store(src + place, source, mask=source >= 0)
    tl.store(dst + place, tl.broadcast_to(row[:, None], [BLOCK, TAPS]), mask=source >= 0)


@triton.jit(do_not_specialize=["rows", "slots", "each", "passes"])
def row_keys(
    table,
    rank,
    items,
    counts,
    rows,
    slots,
    each,
    passes,
    BLOCK: tl.constexpr,
    DIGITS: tl.constexpr,
):
    """Items for `metal/_sort.py`, and the counts of its first pass: one program a block.

    A key has bit rank[s] set where slot s is present; it is that word's Gray-code position. Sorted
    by it, rows stand side by side whose slots differ little.
    """
    block = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    digit = tl.arange(0, DIGITS)
    seen = tl.zeros([DIGITS], tl.int32)
    for start in range(0, each, BLOCK):
        row = block * each + start + lane
        inside = (row < rows) & (start + lane < each)
        at = row.to(tl.int64) * slots
        word = tl.zeros([BLOCK], tl.int32)
        for s in range(slots):
            present = tl.load(table + at + s, mask=inside, other=-1) >= 0
            word |= present.to(tl.int32) << tl.load(rank + s)
        word ^= word >> 1
        word ^= word >> 2
        word ^= word >> 4
        word ^= word >> 8
        word ^= word >> 16
        tl.store(items + row, (word.to(tl.int64) << 32) | row.to(tl.int64), mask=inside)
        seen += tl.histogram(word & (DIGITS - 1), DIGITS, mask=inside)
    tl.store(counts + block * DIGITS + digit, seen)
    for later in range(1, passes):
        entry = (later * tl.num_programs(0) + block) * DIGITS + digit
        tl.store(counts + entry, tl.zeros([DIGITS], tl.int32))


@triton.jit(do_not_specialize=["rows", "taps", "slots", "half"])
def build_tiles(
    table,
    items,
    tile_rows,
    tile_inputs,
    tile_taps,
    tile_count,
    half,
    rows,
    taps,
    slots,
    BM: tl.constexpr,
):
    """One tile of BM rows in the order of items[half]: the rows, the taps that any of them has, and
    for each of those taps the input rows, -1 where a row lacks it. The entries that are left hold
    -1, and so does the one after the last tile."""
    tile = tl.program_id(0)
    lane = tl.arange(0, BM)
    place = tile * BM + lane
    items += half.to(tl.int64) * rows
    row = tl.load(items + place, mask=place < rows, other=-1).to(tl.int32)  # the key goes
    tl.store(tile_rows + place, row)
    row = row.to(tl.int64)
    first = tile.to(tl.int64) * slots
    count = 0
    for s in range(slots):
        source = tl.load(table + row * slots + s, mask=row >= 0, other=-1)
        present = tl.max(source, 0) >= 0
        # Entries in use from the front, the others, which hold -1, from behind.
        entry = first + tl.where(present, count, slots - 1 - (s - count))
        tl.store(tile_inputs + entry * BM + lane, source)
        tl.store(tile_taps + entry, tl.where(present, s % taps, -1))
        count += present.to(tl.int32)
    tl.store(tile_count + tile, count)
    last = tl.num_programs(0).to(tl.int64) * slots
    end = tile == tl.num_programs(0) - 1
    tl.store(tile_inputs + last * BM + lane, tl.full([BM], -1, tl.int32), mask=end & (lane >= 0))
    tl.store(tile_taps + last, -1, mask=end)
