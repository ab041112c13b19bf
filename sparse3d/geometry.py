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
    "normalize",
    "output_shape",
    "submanifold_padding",
    "taps",
    "transposed_output_shape",
]


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
        ValueError: if a kernel size, stride or dilation is below 1; a padding may be negative.
    """

    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def __post_init__(self) -> None:
        if min(*self.kernel_size, *self.stride, *self.dilation) < 1:
            for name in ("kernel_size", "stride", "dilation"):
                normalize(name, getattr(self, name), self.ndim, 1)

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
