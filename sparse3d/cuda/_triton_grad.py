"""Triton kernels of the weight gradient: parts of every tap's pairs, added in a fixed order."""

import triton
import triton.language as tl

from ._triton_terms import unscaled

_INTEGERS = [
    "parts", "taps", "c_in", "c_out", "x_row", "x_low", "grad_row", "grad_low", "size",
]  # fmt: skip


@triton.jit(do_not_specialize=_INTEGERS)
def weight_grad_parts(
    x,
    grad,
    partial,
    src,
    dst,
    bounds,
    largest,
    parts,
    taps,
    c_in,
    c_out,
    x_row,
    x_low,
    grad_row,
    grad_low,
    size,
    VECTOR: tl.constexpr,
    EVEN: tl.constexpr,
    TERMS: tl.constexpr,
    WIDE: tl.constexpr,
    BO: tl.constexpr,
    BI: tl.constexpr,
    BP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """partial[tap * parts + part] = sum of grad[dst]^T x[src] over one part of one tap's pairs.

    `size` is the elements of one tap's weight. Programs of all taps of a part are neighbours: they
    read the same rows. TERMS 3 as in `conv_tiles`.
    """
    c_in, c_out = c_in * VECTOR, c_out * VECTOR
    x_row, x_low = x_row * VECTOR, x_low * VECTOR
    grad_row, grad_low = grad_row * VECTOR, grad_low * VECTOR
    group = tl.program_id(2)
    i_blocks = tl.cdiv(c_in, BI)
    o = (tl.program_id(0) // i_blocks) * BO + tl.arange(0, BO)
    i = (tl.program_id(0) % i_blocks) * BI + tl.arange(0, BI)
    part = tl.program_id(1) // taps
    tap = tl.program_id(1) % taps
    begin = tl.load(bounds + tap)
    pairs = tl.load(bounds + tap + 1) - begin
    start = pairs * part // parts
    count = (pairs * (part + 1) // parts - start).to(tl.int32)
    src += begin + start
    dst += begin + start
    x += group * c_in
    grad += group * c_out
    lane = tl.arange(0, BP)
    acc = tl.zeros([BO, BI], tl.float32)
    # As in the convolution, the next step's rows wait in registers.
    p = tl.load(src + lane, mask=lane < count, other=-1)
    q = tl.load(dst + lane, mask=lane < count, other=-1)
    for first in tl.range(0, count, BP, num_stages=STAGES):
        if WIDE:
            x_at = p.to(tl.int64)[:, None] * x_row + i[None, :]
            g_at = q.to(tl.int64)[:, None] * grad_row + o[None, :]
        else:
            x_at = p[:, None] * x_row + i[None, :]
            g_at = q[:, None] * grad_row + o[None, :]
        x_in = (p >= 0)[:, None]
        g_in = (q >= 0)[:, None]
        if not EVEN:
            x_in = x_in & (i < c_in)[None, :]
            g_in = g_in & (o < c_out)[None, :]
        row = tl.load(x + x_at, mask=x_in, other=0.0)
        up = tl.load(grad + g_at, mask=g_in, other=0.0)
        if TERMS == 3:
            row_rest = tl.load(x + (x_at + x_low), mask=x_in, other=0.0)
            up_rest = tl.load(grad + (g_at + grad_low), mask=g_in, other=0.0)
        following = first + BP + lane
        p = tl.load(src + following, mask=following < count, other=-1)
        q = tl.load(dst + following, mask=following < count, other=-1)
        if TERMS == 3:
            acc = tl.dot(tl.trans(up_rest), row, acc)
            acc = tl.dot(tl.trans(up), row_rest, acc)
        acc = tl.dot(tl.trans(up), row, acc, input_precision="tf32")
    if TERMS == 3:
        acc = unscaled(acc, largest)
    slot = (tap * parts + part).to(tl.int64) * size
    at = slot + (group * c_out + o)[:, None] * c_in + i[None, :]
    tl.store(partial + at, acc, mask=(o < c_out)[:, None] & (i < c_in)[None, :])


@triton.jit(do_not_specialize=["parts", "taps", "c_in", "size"])
def finish_weight_grad(partial, out, parts, taps, c_in, size, BLOCK: tl.constexpr):
    """out[o, tap, i] = the parts of a tap, added eight at a time, always in the same order."""
    tap = tl.program_id(1)
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, 8)
    acc = tl.zeros([BLOCK], tl.float32)
    partial += tap.to(tl.int64) * parts * size
    for first in range(0, parts, 8):
        part = first + lane
        at = part.to(tl.int64)[:, None] * size + e[None, :]
        some = (part < parts)[:, None] & (e < size)[None, :]
        acc += tl.sum(tl.load(partial + at, mask=some, other=0.0), 0)
    at = (e // c_in).to(tl.int64) * (taps * c_in) + tap * c_in + e % c_in
    tl.store(out + at, acc.to(out.dtype.element_ty), mask=e < size)
