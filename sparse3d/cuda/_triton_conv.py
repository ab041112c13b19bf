"""Triton kernels of sparse convolution: output-stationary sums over tiles of rows.

Letters as everywhere: N input rows, M output rows, K taps, C_in, C_out. A tile is BM output rows
whose taps are alike; `_plan` makes them. One program sums one tile by BN channels, tap by tap, BK
input channels a step. Channel counts and strides are handed over in units of VECTOR elements, so
that the compiler knows how wide it may load.
"""

import triton
import triton.language as tl

from ._triton_terms import unscaled


@triton.jit
def finished(
    acc, bias, residual, row, cols, inside, width, res_row, has, act, slope, ADD: tl.constexpr
):
    """act(acc + bias + residual). has: a bias; ADD: a residual; act: 1 slope below zero,
    2 sigmoid."""
    shift = tl.load(bias + cols, mask=(cols < width) & (has != 0), other=0.0)
    acc += shift.to(tl.float32)[None, :]
    if ADD:
        at = row[:, None] * res_row + cols[None, :]
        acc += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    if act == 1:
        below = acc * slope
        if slope == 0.0:
            below = tl.zeros_like(acc)
        acc = tl.where(acc < 0.0, below, acc)
    if act == 2:
        acc = 1.0 / (1.0 + tl.exp(-acc))
    return acc


_INTEGERS = [
    "tiles", "rows", "slots", "split", "c_in", "c_out", "x_row", "x_low", "out_row",
    "res_row", "w_row", "w_tap", "w_group", "w_low", "has", "act",
]  # fmt: skip


@triton.jit(do_not_specialize=_INTEGERS)
def conv_tiles(
    x,
    weight,
    out,
    bias,
    residual,
    partial,
    tile_rows,
    tile_inputs,
    tile_taps,
    tile_count,
    largest,
    tiles,
    rows,
    slots,
    split,
    c_in,
    c_out,
    x_row,
    x_low,
    out_row,
    res_row,
    w_row,
    w_tap,
    w_group,
    w_low,
    has,
    act,
    slope,
    VECTOR: tl.constexpr,
    ADD: tl.constexpr,
    EVEN: tl.constexpr,
    BACKWARD: tl.constexpr,
    TERMS: tl.constexpr,
    WIDE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """out[q] = act(sum over t of x[input(q, t)] @ weight[t] + bias + residual[q]).

    EVEN: BK divides C_in and BN divides C_out. BACKWARD: the weight's inner axis is the output's.
    TERMS 3: x and weight are two terms each, see `_triton_terms`, the low one `x_low`, `w_low`
    further on. WIDE: element numbers can pass 2^31. With split > 1
    program axis 1 takes a share of the tile's taps and writes bare sums to partial[share]; program
    axis 2 is the channel group.
    """
    c_in, c_out = c_in * VECTOR, c_out * VECTOR
    x_row, x_low = x_row * VECTOR, x_low * VECTOR
    w_row, w_tap = w_row * VECTOR, w_tap * VECTOR
    w_group, w_low = w_group * VECTOR, w_low * VECTOR
    group = tl.program_id(2)
    n_blocks = tl.cdiv(c_out, BN)
    tile = tiles - 1 - tl.program_id(0) // n_blocks  # most taps stand last: they start first
    cols = (tl.program_id(0) % n_blocks) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    lane = tl.arange(0, BM)
    share = tl.program_id(1)
    entries = tl.load(tile_count + tile)
    first = entries * share // split
    count = entries * (share + 1) // split - first
    tile_taps += tile * slots + first
    tile_inputs += (tile.to(tl.int64) * slots + first) * BM
    if WIDE:
        weight += group.to(tl.int64) * w_group
    else:
        weight += group * w_group
    x += group * c_in
    acc = tl.zeros([BM, BN], tl.float32)
    # Rows and tap of the next step wait in registers: a load that feeds another load would halve
    # the depth of the pipeline. The last step reads one entry too far, which the plan allocates.
    source = tl.load(tile_inputs + lane)
    tap = tl.load(tile_taps)
    entry = 0
    k = 0
    for _ in tl.range(0, count * tl.cdiv(c_in, BK), num_stages=STAGES):
        if WIDE:
            a_at = source.to(tl.int64)[:, None] * x_row + (k + ks)[None, :]
            b_at = tap.to(tl.int64) * w_tap
        else:
            a_at = source[:, None] * x_row + (k + ks)[None, :]
            b_at = tap * w_tap
        if BACKWARD:
            b_at = b_at + (k + ks)[:, None] * w_row + cols[None, :]
        else:
            b_at = b_at + (k + ks)[:, None] + cols[None, :] * w_row
        a_in = (source >= 0)[:, None]
        if EVEN:
            a = tl.load(x + a_at, mask=a_in, other=0.0)
            b = tl.load(weight + b_at)
            if TERMS == 3:
                a_rest = tl.load(x + (a_at + x_low), mask=a_in, other=0.0)
                b_rest = tl.load(weight + (b_at + w_low))
        else:
            a_in = a_in & (k + ks < c_in)[None, :]
            b_in = (k + ks < c_in)[:, None] & (cols < c_out)[None, :]
            a = tl.load(x + a_at, mask=a_in, other=0.0)
            b = tl.load(weight + b_at, mask=b_in, other=0.0)
            if TERMS == 3:
                a_rest = tl.load(x + (a_at + x_low), mask=a_in, other=0.0)
                b_rest = tl.load(weight + (b_at + w_low), mask=b_in, other=0.0)
        k += BK
        done = k >= c_in
        k = tl.where(done, 0, k)
        entry += done.to(tl.int32)
        source = tl.load(tile_inputs + entry * BM + lane)
        tap = tl.load(tile_taps + entry)
        if TERMS == 3:
            acc = tl.dot(a_rest, b, acc)
            acc = tl.dot(a, b_rest, acc)
        acc = tl.dot(a, b, acc, input_precision="tf32")
    if TERMS == 3:
        acc = unscaled(acc, largest)
    row = tl.load(tile_rows + tile * BM + lane).to(tl.int64)
    inside = (row >= 0)[:, None]
    if not EVEN:
        inside = inside & (cols < c_out)[None, :]
    width = c_out * tl.num_programs(2)
    channel = group * c_out + cols
    if split > 1:
        at = (share.to(tl.int64) * rows + row)[:, None] * width + channel[None, :]
        tl.store(partial + at, acc, mask=inside)
    else:
        limit = (group + 1) * c_out
        acc = finished(
            acc, bias, residual, row, channel, inside, limit, res_row, has, act, slope, ADD
        )
        at = row[:, None] * (out_row * VECTOR) + channel[None, :]
        tl.store(out + at, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "width", "split", "out_row", "res_row", "has", "act"])
def finish_splits(
    partial,
    out,
    bias,
    residual,
    rows,
    width,
    split,
    out_row,
    res_row,
    has,
    act,
    slope,
    VECTOR: tl.constexpr,
    ADD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Adds the shares of `conv_tiles` in order and ends as it does."""
    width = width * VECTOR
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (row < rows)[:, None] & (cols < width)[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for _ in range(split):
        acc += tl.load(partial + row[:, None] * width + cols[None, :], mask=inside, other=0.0)
        partial += rows.to(tl.int64) * width
    acc = finished(acc, bias, residual, row, cols, inside, width, res_row, has, act, slope, ADD)
    at = row[:, None] * (out_row * VECTOR) + cols[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=inside)


_CHANNELS = ["slots", "width", "taps", "x_row", "out_row", "res_row", "has", "act"]


@triton.jit(do_not_specialize=_CHANNELS)
def conv_channels(
    x,
    weight,
    out,
    bias,
    residual,
    tile_rows,
    tile_inputs,
    tile_taps,
    tile_count,
    slots,
    width,
    taps,
    x_row,
    out_row,
    res_row,
    has,
    act,
    slope,
    ADD: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """A depthwise layer: every channel by itself, weight [C, K]."""
    tile = tl.program_id(0)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    lane = tl.arange(0, BM)
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(tl.load(tile_count + tile)):
        entry = tile.to(tl.int64) * slots + step
        source = tl.load(tile_inputs + entry * BM + lane).to(tl.int64)
        tap = tl.load(tile_taps + entry)
        inside = (source >= 0)[:, None] & (cols < width)[None, :]
        value = tl.load(x + source[:, None] * x_row + cols[None, :], mask=inside, other=0.0)
        scale = tl.load(weight + cols.to(tl.int64) * taps + tap, mask=cols < width, other=0.0)
        acc += value.to(tl.float32) * scale.to(tl.float32)[None, :]
    row = tl.load(tile_rows + tile * BM + lane).to(tl.int64)
    inside = (row >= 0)[:, None] & (cols < width)[None, :]
    acc = finished(acc, bias, residual, row, cols, inside, width, res_row, has, act, slope, ADD)
    at = row[:, None] * out_row + cols[None, :]
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=inside)
