"""Scatter reductions: sum, product, mean, maximum and minimum of entries that share an index.

Meaning: `out[..., i, ...] = reduce of src[..., j, ...] over all j with index[..., j, ...] = i`.
Shapes: `index` is 1-dimensional (along `dim`) or broadcasts to `src` as in torch_scatter: leading
axes first. `out` has `src`'s shape with `dim_size` along `dim` (default: largest index + 1).
Order: entries of a segment are added in ascending order of j, whatever the threads; products are
made of neighbours in that order, two by two, until one is left.
Ties of maximum and minimum: the lowest j. `arg`: int64, that j; -1 where a segment is empty.
Empty segments: 0, product 1. Mean divides by max(count, 1), integers with floor or, by
`rounding="trunc"`, towards zero.
initial: values of the result's shape and `src`'s dtype that the reduction starts from. Sum and
product take them as one more entry, mean counts them into the sum but not into the count, and
maximum and minimum keep them, with `arg` -1, unless an entry is strictly greater or less.
Accumulation: float32 for float16, bfloat16 and float32; float64; integers exactly. Sums, products,
means and their gradients are rounded to `src`'s dtype once, at the end.
Gradient: sum and mean spread to all entries, a product's entry gets the product of the others,
maximum and minimum to the entry named by `arg`; `initial` gets its share of each.
Determinism: same bytes on every backend and with any number of threads.
Errors: a negative index, one >= dim_size, an index that does not broadcast, an `initial` of another
shape, dtype or device.

Example:
    >>> import torch
    >>> from sparse3d.pointops import scatter_max, scatter_sum
    >>> src, index = torch.tensor([1.0, 5.0, 2.0]), torch.tensor([0, 2, 0])
    >>> scatter_sum(src, index).tolist()
    [3.0, 0.0, 5.0]
    >>> out, arg = scatter_max(src, index)
    >>> out.tolist(), arg.tolist()
    ([2.0, 0.0, 5.0], [2, -1, 1])
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from sparse3d._check import fail, fail_type, same_device, tensor
from sparse3d.ops.order import count_ids, order_keys, running_sum
from sparse3d.ops.segment import segment_max, segment_sum, take_rows

from ._inputs import count, largest, values_known

ROUNDINGS = ("floor", "trunc")


@dataclass(frozen=True)
class Layout:
    """How `src`, `length` entries along the axis, becomes rows: values [N, C], one id a row, `num`
    segments."""

    length: int
    ids: torch.Tensor
    num: int
    size: int
    rest: list[int]
    shared: bool

    def rows(self, src: torch.Tensor, dim: int) -> torch.Tensor:
        moved = src.movedim(dim, 0)
        columns = math.prod(self.rest)
        return moved.reshape(moved.shape[0], columns) if self.shared else moved.reshape(-1, 1)

    def restore(self, out: torch.Tensor, dim: int) -> torch.Tensor:
        return out.reshape([self.size, *self.rest]).movedim(0, dim)

    def entries(self, rows: torch.Tensor, dim: int) -> torch.Tensor:
        """The inverse of `rows`."""
        return rows.reshape([self.length, *self.rest]).movedim(0, dim)

    def spread(self, out: torch.Tensor) -> torch.Tensor:
        """Each row's segment of `out` [num, C]; the gradient is a sum in order."""
        return take_rows(out, self.ids) if out.is_floating_point() else out[self.ids]


def broadcast_index(index: torch.Tensor, src: torch.Tensor, dim: int) -> torch.Tensor:
    """`index` with axes added until it has the shape of `src`: a vector lies along `dim`."""
    spread = index
    if index.ndim == 1:
        spread = spread.reshape([1] * (dim % src.ndim) + [-1])
    spread = spread.reshape([*spread.shape, *[1] * (src.ndim - spread.ndim)])
    try:
        return spread.expand(src.shape)
    except RuntimeError:
        fail("index", f"broadcastable to src {list(src.shape)}", list(index.shape))


def start_of(
    src: torch.Tensor, dim: int, dim_size: int | None, initial: torch.Tensor | None
) -> int | None:
    """Segments, where the initial values tell them; those are checked."""
    if initial is None:
        return dim_size
    tensor("initial", initial, src.ndim)
    same_device(src=src, initial=initial)
    if initial.dtype != src.dtype:
        fail("initial", f"{src.dtype} as src is", initial.dtype, "convert it with .to(src.dtype)")
    if not -src.ndim <= dim < src.ndim:
        fail("dim", f"in [{-src.ndim}, {src.ndim})", dim)
    wanted = list(src.shape)
    wanted[dim] = initial.shape[dim] if dim_size is None else dim_size
    if list(initial.shape) != wanted:
        fail("initial", f"of shape {wanted}", list(initial.shape))
    return int(initial.shape[dim])


def _segments(index: torch.Tensor, dim_size: int | None) -> int:
    """How many segments there are: as stated, or the largest index + 1."""
    highest = -1
    if index.numel() and values_known(index):
        low, highest = (int(bound) for bound in torch.aminmax(index))
        if low < 0:
            fail("index", ">= 0", low)
    elif index.numel() and dim_size is None:
        highest = largest("index", index, "pass dim_size")
    size = highest + 1 if dim_size is None else count("dim_size", dim_size, 0)
    if highest >= size:
        fail("index", f"in [0, {size}), dim_size", highest)
    return size


def lay_out(
    src: torch.Tensor, index: torch.Tensor, dim: int, dim_size: int | None
) -> tuple[Layout, int]:
    """Checked arguments of a reduction as rows, and `dim` counted from the front."""
    tensor("src", src)
    tensor("index", index)
    same_device(src=src, index=index)
    if index.dtype not in (torch.int64, torch.int32):
        fail_type("index", "int64 or int32", index.dtype, "convert with .long()")
    if not -src.ndim <= dim < src.ndim:
        fail("dim", f"in [{-src.ndim}, {src.ndim})", dim)
    dim %= src.ndim
    if index.ndim == 1:
        if index.shape[0] != src.shape[dim]:
            fail("index", f"of {src.shape[dim]} entries, the size of src along dim", len(index))
    else:
        spread = index.reshape(*index.shape, *[1] * (src.ndim - index.ndim))
        try:
            index = spread.expand_as(src)
        except RuntimeError:
            fail("index", f"broadcastable to src {list(src.shape)}", list(index.shape))
    size = _segments(index, dim_size)
    rest = [length for axis, length in enumerate(src.shape) if axis != dim]
    if index.ndim == 1 or all(length == 1 for length in rest):
        ids = index.reshape(-1).long()
        return Layout(src.shape[dim], ids, size, size, rest, True), dim
    columns = math.prod(rest)
    moved = index.movedim(dim, 0).reshape(index.shape[dim], columns).long()
    ids = (moved * columns + torch.arange(columns, device=index.device)).reshape(-1)
    return Layout(src.shape[dim], ids, size * columns, size, rest, False), dim


def widened(rows: torch.Tensor) -> torch.Tensor:
    """Rows in the dtype of accumulation: float32 for float16 and bfloat16, else as they are."""
    return rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows


def sum_rows(rows: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Sums [num, C] of the rows of each segment."""
    if rows.is_floating_point():
        total: torch.Tensor = segment_sum(rows.contiguous(), layout.ids, layout.num)
        return total
    # Integer sums are exact in any order.
    return rows.new_zeros((layout.num, rows.shape[1])).index_add(0, layout.ids, rows)


def _extreme(rows: torch.Tensor, layout: Layout) -> tuple[torch.Tensor, torch.Tensor]:
    """Maxima [num, C] and their rows; 0 and -1 where a segment is empty."""
    if rows.is_floating_point():
        found: tuple[torch.Tensor, torch.Tensor] = segment_max(
            rows.contiguous(), layout.ids, layout.num
        )
        return found
    shape = (layout.num, rows.shape[1])
    index = layout.ids[:, None].expand_as(rows)
    best = rows.new_zeros(shape).scatter_reduce(0, index, rows, "amax", include_self=False)
    place = torch.arange(rows.shape[0], device=rows.device)[:, None].expand_as(rows)
    place = torch.where(rows == best[layout.ids], place, rows.shape[0])
    first = place.new_full(shape, rows.shape[0]).scatter_reduce(0, index, place, "amin")
    return best, torch.where(first < rows.shape[0], first, -1)


def _product(rows: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Entries of a segment side by side; in each round every second takes the next one in."""

    def taken(values: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return take_rows(values, at) if values.is_floating_point() else values[at]

    order = order_keys(layout.ids)
    ids, rows = layout.ids[order], taken(rows, order)
    counts = count_ids(ids, layout.num)
    while ids.numel() and int(counts.max()) > 1:
        place = torch.arange(ids.numel(), device=ids.device)
        rank = place - (running_sum(counts) - counts)[ids]
        kept = (rank % 2 == 0).nonzero()[:, 0]
        paired = rank[kept] + 1 < counts[ids[kept]]
        partner = taken(rows, (kept + 1).clamp_max(ids.numel() - 1))
        rows = taken(rows, kept) * torch.where(paired[:, None], partner, 1)
        ids, counts = ids[kept], torch.div(counts + 1, 2, rounding_mode="floor")
    return rows.new_ones((layout.num, rows.shape[1])).index_copy(0, ids, rows)


def _total(
    src: torch.Tensor, layout: Layout, dim: int, initial: torch.Tensor | None
) -> torch.Tensor:
    """Wide sums of the segments, on top of `initial`."""
    total = sum_rows(widened(layout.rows(src, dim)), layout)
    return total if initial is None else total + widened(layout.rows(initial, dim))


def scatter_sum(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum of the entries of each segment.

    Args:
        src: any shape; floating or integer.
        index: int64 or int32, 1-dimensional along `dim` or broadcastable to `src`.
        dim: the reduced axis.
        dim_size: segments; the largest index + 1 where None.
        initial: values to start from, shaped as the result; they tell `dim_size` too.

    Returns:
        `src`'s dtype, `dim_size` entries along `dim`.
    """
    layout, dim = lay_out(src, index, dim, start_of(src, dim, dim_size, initial))
    return layout.restore(_total(src, layout, dim, initial).to(src.dtype), dim)


def scatter_mul(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Product of the entries of each segment, 1 where empty; arguments as `scatter_sum`."""
    layout, dim = lay_out(src, index, dim, start_of(src, dim, dim_size, initial))
    product = _product(widened(layout.rows(src, dim)), layout)
    if initial is not None:
        product = widened(layout.rows(initial, dim)) * product
    return layout.restore(product.to(src.dtype), dim)


def scatter_mean(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    rounding: str = "floor",
    initial: torch.Tensor | None = None,
) -> torch.Tensor:
    """Mean of the entries of each segment; arguments as `scatter_sum`.

    Args:
        src: as `scatter_sum`.
        index: as `scatter_sum`.
        dim: as `scatter_sum`.
        dim_size: as `scatter_sum`.
        rounding: of integers, "floor" or "trunc".
        initial: as `scatter_sum`; part of the sum, not of the count.
    """
    if rounding not in ROUNDINGS:
        fail("rounding", f"one of {ROUNDINGS}", repr(rounding))
    layout, dim = lay_out(src, index, dim, start_of(src, dim, dim_size, initial))
    total = _total(src, layout, dim, initial)
    counts = count_ids(layout.ids, layout.num).clamp_min(1)[:, None]
    if src.is_floating_point():
        mean = total / counts.to(total.dtype)
    else:
        mean = torch.div(total, counts.to(total.dtype), rounding_mode=rounding)
    return layout.restore(mean.to(src.dtype), dim)


def scatter_max(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    initial: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum of each segment and the int64 position of it along `dim`; arguments as `scatter_sum`.

    Returns:
        `(out, arg)`; 0 (or `initial`) and -1 where a segment is empty.
    """
    layout, dim = lay_out(src, index, dim, start_of(src, dim, dim_size, initial))
    value, arg = _placed(*_extreme(layout.rows(src, dim), layout), layout, dim)
    if initial is None:
        return value, arg
    wins = (arg >= 0) & (value > initial)
    return torch.where(wins, value, initial), torch.where(wins, arg, -1)


def scatter_min(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: int | None = None,
    *,
    initial: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum of each segment and the int64 position of it along `dim`; see `scatter_max`."""
    layout, dim = lay_out(src, index, dim, start_of(src, dim, dim_size, initial))
    rows = layout.rows(src, dim)
    # ~ and not - for whole numbers, whose least has no opposite.
    value, arg = _extreme(-rows if src.is_floating_point() else ~rows, layout)
    value = torch.where(arg >= 0, -value if src.is_floating_point() else ~value, 0)
    value, arg = _placed(value, arg, layout, dim)
    if initial is None:
        return value, arg
    wins = (arg >= 0) & (value < initial)
    return torch.where(wins, value, initial), torch.where(wins, arg, -1)


def _placed(
    value: torch.Tensor, arg: torch.Tensor, layout: Layout, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and rows of segments as the caller's axes have them."""
    if not layout.shared:
        columns = layout.num // max(layout.size, 1)
        arg = torch.where(arg >= 0, torch.div(arg, max(columns, 1), rounding_mode="floor"), -1)
    return layout.restore(value, dim), layout.restore(arg, dim)
