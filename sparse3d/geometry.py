"""Pure integers: kernel taps, output grids and the one convolution equation. No torch.

Tap `t` pairs input coordinate `p` with output coordinate `q` when, on every axis,

    p = q * stride - padding + t * dilation

A transposed or inverse layer uses the same pairs with the roles swapped and the same `t`. A
submanifold layer has stride 1, padding = dilation * (kernel_size // 2), outputs = inputs, and odd
kernel sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

__all__ = [
    "Geometry",
    "box_around",
    "centred_padding",
    "coarser",
    "cross_offsets",
    "cube_offsets",
    "divides",
    "finer",
    "normalize",
    "output_shape",
    "submanifold_padding",
    "taps",
    "transposed_output_shape",
]


FARTHEST = 1 << 62
"""Bound of a tap's place: sums of it and a coordinate fit in 64 bits."""


def normalize(name: str, value: int | Sequence[int], ndim: int, minimum: int) -> tuple[int, ...]:
    """Spread an integer over `ndim` axes, or check a sequence of that length.

    Raises:
        TypeError: if an entry is not an integer.
        ValueError: if the length is not `ndim` or an entry is below `minimum`.
    """
    entries = list(value) if isinstance(value, Sequence) or hasattr(value, "__iter__") else [value]
    if len(entries) == 1:
        entries = entries * ndim
    for entry in entries:
        if isinstance(entry, bool) or not hasattr(entry, "__index__"):
            raise TypeError(f"{name} must be an integer or {ndim} integers, got {value!r}")
    sizes = tuple(int(entry) for entry in entries)
    if len(sizes) != ndim:
        raise ValueError(f"{name} must have {ndim} entries (one an axis), got {list(sizes)}")
    if any(size < minimum for size in sizes):
        raise ValueError(f"{name} must be >= {minimum} on every axis, got {list(sizes)}")
    return sizes


@dataclass(frozen=True, slots=True)
class Geometry:
    """Kernel size, stride, padding and dilation of a layer, one entry an axis.

    Raises:
        ValueError: if a kernel size, stride or dilation is below 1 (a padding may be negative), or
            taps lie so far that 64 bits do not hold their places.
    """

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def __post_init__(self) -> None:
        if min(*self.kernel_size, *self.stride, *self.dilation) < 1:
            for name in ("kernel_size", "stride", "dilation"):
                normalize(name, getattr(self, name), self.ndim, 1)
        sizes = zip(self.kernel_size, self.padding, self.dilation, strict=True)
        far = (abs(p) + d * (k - 1) for k, p, d in sizes)
        if max(*far, *(s << 31 for s in self.stride)) >= FARTHEST:
            raise ValueError(
                "kernel_size, padding, dilation and 2^31 strides must reach less than 2^62, "
                f"got {self}; sites lie within 2^32 of each other"
            )

    @property
    def ndim(self) -> int:
        return len(self.kernel_size)

    @property
    def volume(self) -> int:
        """Number of taps K."""
        return prod(self.kernel_size)

    @property
    def is_pointwise(self) -> bool:
        """One tap that pairs every site with itself."""
        return self.volume == 1 and set(self.stride) == {1} and set(self.padding) == {0}

    @property
    def is_submanifold(self) -> bool:
        """An odd kernel of stride 1, centred on its own site."""
        sizes = zip(self.kernel_size, self.stride, self.padding, self.dilation, strict=True)
        return all(k % 2 == 1 and s == 1 and p == d * (k // 2) for k, s, p, d in sizes)

    def mirrored(self) -> Geometry:
        """The same kernel with every offset negated: tap t is tap K - 1 - t of this one."""
        sizes = zip(self.kernel_size, self.padding, self.dilation, strict=True)
        reach = tuple(d * (k - 1) - p for k, p, d in sizes)
        return replace(self, padding=reach)

    def mirror_taps(self, taps: Sequence[int]) -> list[int]:
        """The taps of `mirrored()` with the offsets of these taps negated."""
        return [self.volume - 1 - tap for tap in taps]

    def whole_cell(self, unit: Sequence[int]) -> Geometry:
        """A cell of so many taps an axis, each `unit` places wide, between single places."""
        ones, zeros = (1,) * self.ndim, (0,) * self.ndim
        size = tuple(k * u for k, u in zip(self.kernel_size, unit, strict=True))
        return Geometry(size, ones, zeros, ones)

    def with_stride(self, stride: Sequence[int]) -> Geometry:
        """The same kernel at another stride."""
        return replace(self, stride=tuple(stride))

    def scaled(self, unit: Sequence[int]) -> Geometry:
        """The kernel between sites that are multiples of a unit: stride 1, offsets times the
        unit."""
        return Geometry(
            self.kernel_size,
            (1,) * self.ndim,
            tuple(p * u for p, u in zip(self.padding, unit, strict=True)),
            tuple(d * u for d, u in zip(self.dilation, unit, strict=True)),
        )

    def __str__(self) -> str:
        return (
            f"kernel_size={list(self.kernel_size)}, stride={list(self.stride)}, "
            f"padding={list(self.padding)}, dilation={list(self.dilation)}"
        )


def taps(kernel_size: Sequence[int]) -> list[tuple[int, ...]]:
    """All tap indices in row-major order, last axis fastest: their position is the flat tap index.

    >>> taps((1, 3))
    [(0, 0), (0, 1), (0, 2)]
    """
    return list(itertools.product(*(range(size) for size in kernel_size)))


def coarser(stride: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """The tensor stride behind a layer of these strides: the products.

    >>> coarser((2, 4), (2, 1))
    (4, 4)
    """
    return tuple(a * b for a, b in zip(stride, steps, strict=True))


def finer(stride: Sequence[int], steps: Sequence[int]) -> tuple[int, ...]:
    """The tensor stride behind a transposed layer of these strides: the quotients, rounded down."""
    return tuple(a // b for a, b in zip(stride, steps, strict=True))


def divides(steps: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether each stride is a multiple of its step; nothing is one of 0.

    >>> divides((2, 1), (4, 3)), divides((2, 0), (4, 0))
    (True, False)
    """
    return all(b != 0 and a % b == 0 for a, b in zip(stride, steps, strict=True))


def centred_padding(
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    otherwise: Sequence[int] | None = None,
    *,
    stride: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Padding that centres the kernel on axes of odd size (and of stride 1 where one is given).

    Args:
        kernel_size: one entry an axis.
        dilation: likewise.
        otherwise: padding of the other axes; None for 0.
        stride: likewise.

    >>> centred_padding((3, 2, 5), (1, 1, 2))
    (1, 0, 4)
    """
    rest, steps = otherwise or [0] * len(kernel_size), stride or [1] * len(kernel_size)
    axes = zip(kernel_size, dilation, rest, steps, strict=True)
    return tuple(d * (k // 2) if k % 2 and s == 1 else p for k, d, p, s in axes)


def cube_offsets(
    kernel_size: Sequence[int], start: Sequence[int] | None = None, *, first_fastest: bool = False
) -> list[tuple[int, ...]]:
    """Offsets of a box's taps.

    Args:
        kernel_size: one entry an axis.
        start: the least offset an axis; None centres odd axes and starts even ones at 0.
        first_fastest: which axis runs fastest, the first or the last.

    >>> cube_offsets((1, 2)), cube_offsets((2, 3), first_fastest=True)[:3]
    ([(0, 0), (0, 1)], [(0, -1), (1, -1), (0, 0)])
    """
    low = [-(k // 2) if k % 2 else 0 for k in kernel_size] if start is None else start
    axes = [range(a, a + k) for a, k in zip(low, kernel_size, strict=True)]
    if first_fastest:
        return [tuple(reversed(row)) for row in itertools.product(*reversed(axes))]
    return list(itertools.product(*axes))


def cross_offsets(kernel_size: Sequence[int]) -> list[tuple[int, ...]]:
    """Offsets of a cross of odd sizes: the centre, then of each axis 1 to r and -r to -1.

    >>> cross_offsets((3, 1))
    [(0, 0), (1, 0), (-1, 0)]
    """
    made = [(0,) * len(kernel_size)]
    for axis, size in enumerate(kernel_size):
        half = size // 2
        for reach in [*range(1, half + 1), *range(-half, 0)]:
            made.append(tuple(reach * (a == axis) for a in range(len(kernel_size))))
    return made


def box_around(
    offsets: Sequence[Sequence[int]], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[Geometry, tuple[int, ...]]:
    """The least box that holds listed offsets, and the row-major tap of each in it.

    Args:
        offsets: at least one, in units of the dilation.
        stride: of the layer.
        dilation: of the kernel.

    >>> box_around([(0, 1), (-1, 0)], (1, 1), (1, 1))[1]
    (3, 0)
    """
    columns = list(zip(*offsets, strict=True))
    low = [min(column) for column in columns]
    size = tuple(max(column) - a + 1 for column, a in zip(columns, low, strict=True))
    padding = tuple(-a * d for a, d in zip(low, dilation, strict=True))
    numbers = []
    for offset in offsets:
        number = 0
        for value, a, extent in zip(offset, low, size, strict=True):
            number = number * extent + value - a
        numbers.append(number)
    return Geometry(size, tuple(stride), padding, tuple(dilation)), tuple(numbers)


def submanifold_padding(kernel_size: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """Padding that centres an odd kernel on its own site.

    Raises:
        ValueError: if a kernel size is even.
    """
    if any(size % 2 == 0 for size in kernel_size):
        raise ValueError(
            "kernel_size must be odd on every axis of a submanifold layer, "
            f"got {list(kernel_size)}; use a SparseConv layer for even kernels"
        )
    return tuple(d * (k // 2) for k, d in zip(kernel_size, dilation, strict=True))


def submanifold_geometry(kernel_size: Sequence[int], dilation: Sequence[int]) -> Geometry:
    """The geometry of a submanifold layer.

    Raises:
        ValueError: if a kernel size is even.
    """
    padding = submanifold_padding(kernel_size, dilation)
    return Geometry(tuple(kernel_size), (1,) * len(padding), padding, tuple(dilation))


def output_shape(spatial_shape: Sequence[int], geometry: Geometry) -> tuple[int, ...]:
    """Grid of a strided layer, `(n + 2 padding - dilation (k - 1) - 1) // stride + 1` an axis.

    >>> output_shape((41, 400), Geometry((3, 3), (2, 2), (1, 1), (1, 1)))
    (21, 200)
    """
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            spatial_shape,
            geometry.kernel_size,
            geometry.stride,
            geometry.padding,
            geometry.dilation,
            strict=True,
        )
    )


def transposed_output_shape(
    spatial_shape: Sequence[int], geometry: Geometry, output_padding: Sequence[int]
) -> tuple[int, ...]:
    """Grid of a transposed layer, `(n - 1) stride - 2 padding + dilation (k - 1) + 1 +
    output_padding` an axis.

    This is torch's rule; spconv 2.3.8 leaves dilation out, which cuts taps off.
    """
    return tuple(
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + extra
        for n, k, s, p, d, extra in zip(
            spatial_shape,
            geometry.kernel_size,
            geometry.stride,
            geometry.padding,
            geometry.dilation,
            output_padding,
            strict=True,
        )
    )
