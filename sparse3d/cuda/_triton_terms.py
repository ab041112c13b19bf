"""Triton kernels that write float32 as two float16 terms, for three products on the matrix units.

A tensor is scaled by a power of two that takes its largest element below 2^15; then the high term
is its float16, and the low one the float16 of the rest: 22 bits. high * high + high * low + low *
high misses 2^-22 of a product, and 2^-40 of the tensor's largest element where an element is far
smaller than that.
"""

import triton
import triton.language as tl

_LIMIT = tl.constexpr(100)


@triton.jit
def _shift(bits):
    """14 less the exponent of the float32 whose bits these are, within 2^-114 to 2^114."""
    exponent = (bits >> 23) - 127
    return 14 - tl.minimum(tl.maximum(exponent, -_LIMIT), _LIMIT)


@triton.jit
def unscaled(acc, largest):
    """A sum of products of two scaled tensors, as if neither had been scaled."""
    for side in tl.static_range(2):
        power = 127 - _shift(tl.load(largest + side))
        acc *= (power << 23).to(tl.float32, bitcast=True)
    return acc


@triton.jit
def _largest(values, elements, place, out, BLOCK: tl.constexpr):
    at = place.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(values + at, mask=at < elements, other=0.0).to(tl.int32, bitcast=True)
    tl.atomic_max(out, tl.max(bits & 0x7FFFFFFF, 0))


@triton.jit(do_not_specialize=["blocks", "first_elements", "second_elements"])
def find_largest(
    first, second, largest, blocks, first_elements, second_elements, BLOCK: tl.constexpr
):
    """largest[side] = bits of the largest magnitude of each tensor; 0 before. `blocks` programs
    serve the first, the others the second."""
    place = tl.program_id(0)
    if place < blocks:
        _largest(first, first_elements, place, largest, BLOCK)
    else:
        _largest(second, second_elements, place - blocks, largest + 1, BLOCK)


@triton.jit
def _split(values, out, largest, rows, width, place, BM: tl.constexpr, BN: tl.constexpr):
    row = place.to(tl.int64) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (row < rows)[:, None] & (col < width)[None, :]
    scale = ((127 + _shift(tl.load(largest))) << 23).to(tl.float32, bitcast=True)
    value = tl.load(values + row[:, None] * width + col[None, :], mask=inside, other=0.0) * scale
    high = value.to(tl.float16)
    at = row[:, None] * (2 * width) + col[None, :]
    tl.store(out + at, high, mask=inside)
    tl.store(out + (at + width), (value - high.to(tl.float32)).to(tl.float16), mask=inside)


@triton.jit(do_not_specialize=["blocks", "rows_1", "width_1", "rows_2", "width_2"])
def split_terms(
    first,
    second,
    first_out,
    second_out,
    largest,
    blocks,
    rows_1,
    width_1,
    rows_2,
    width_2,
    VECTOR: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Rows of both tensors as [rows, 2, width]: the high terms, then the low ones."""
    place = tl.program_id(0)
    if place < blocks:
        _split(first, first_out, largest, rows_1, width_1 * VECTOR, place, BM, BN)
    else:
        width = width_2 * VECTOR
        _split(second, second_out, largest + 1, rows_2, width, place - blocks, BM, BN)
