"""Clouds and geometries that every op has to survive. Nothing of ``sparse3d`` is imported here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Coords = npt.NDArray[np.int32]
Axes = tuple[int, ...]

GRID = {1: (23,), 2: (9, 8), 3: (6, 5, 7), 4: (4, 3, 4, 3)}
"""The grid that clouds without negative coordinates lie in, by dimension."""


@dataclass(frozen=True)
class Geometry:
    """A kernel and how it moves, one number for every spatial axis."""

    name: str
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Number of spatial axes."""
        return len(self.kernel_size)

    @property
    def numbers(self) -> tuple[Axes, Axes, Axes, Axes]:
        """Kernel size, stride, padding, dilation: the order in which every map op takes them."""
        return self.kernel_size, self.stride, self.padding, self.dilation

    @property
    def volume(self) -> int:
        """Number of taps."""
        return int(np.prod(self.kernel_size))

    @property
    def submanifold(self) -> bool:
        """Whether a submanifold layer can have this kernel: odd, stride 1, centred."""
        return (
            all(k % 2 for k in self.kernel_size)
            and set(self.stride) == {1}
            and self.padding
            == tuple(d * (k // 2) for k, d in zip(self.kernel_size, self.dilation, strict=True))
        )


@dataclass(frozen=True)
class Case:
    """A cloud under a geometry."""

    cloud: str
    geometry: Geometry

    def __str__(self) -> str:
        return f"{self.cloud}-{self.geometry.name}"

    @property
    def coords(self) -> Coords:
        """The cloud's coordinates, ``[N, 1 + D]``."""
        return cloud(self.cloud, self.geometry.ndim)

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The grid of the cloud, None where its coordinates may be negative."""
        return None if self.cloud == "negative" else GRID[self.geometry.ndim]


def _geometry(
    name: str, kernel: int | tuple[int, ...], stride: int = 1, padding: int = 0, dilation: int = 1
) -> Geometry:
    """A geometry whose name begins with its dimension; numbers are repeated for every axis."""
    ndim = int(name[0])
    sizes = kernel if isinstance(kernel, tuple) else (kernel,) * ndim
    return Geometry(name, sizes, (stride,) * ndim, (padding,) * ndim, (dilation,) * ndim)


GEOMETRIES = (
    _geometry("3d_subm_k3", 3, padding=1),
    _geometry("3d_k2s2", 2, stride=2),
    _geometry("3d_k3s2p1", 3, stride=2, padding=1),
    _geometry("3d_k3s1p0", 3),
    _geometry("3d_k1", 1),
    _geometry("3d_k1s2", 1, stride=2),
    _geometry("3d_subm_k3_d2", 3, padding=2, dilation=2),
    _geometry("3d_k2s1", 2),
    _geometry("3d_k4s3p2", 4, stride=3, padding=2),
    _geometry("3d_k2s3", 2, stride=3),
    Geometry("3d_subm_k135", (1, 3, 5), (1, 1, 1), (0, 1, 2), (1, 1, 1)),
    Geometry("3d_k311_s211", (3, 1, 1), (2, 1, 1), (0, 0, 0), (1, 1, 1)),
    Geometry("3d_k231_s123_d321", (2, 3, 1), (1, 2, 3), (1, 0, 0), (3, 2, 1)),
    _geometry("1d_subm_k3", 3, padding=1),
    _geometry("1d_k5s3p1", 5, stride=3, padding=1),
    _geometry("2d_subm_k3", 3, padding=1),
    _geometry("2d_subm_k5", 5, padding=2),
    _geometry("2d_k3s2p1_d2", 3, stride=2, padding=1, dilation=2),
    _geometry("2d_k4s2p1", 4, stride=2, padding=1),
    _geometry("4d_subm_k3", 3, padding=1),
    _geometry("4d_k2s2", 2, stride=2),
)
"""Every kind of layer in one to four dimensions: odd, even, asymmetric, strided, dilated."""


def _row(batch: int, cells: npt.NDArray[Any]) -> Coords:
    """Cells of one sample as coordinates."""
    ids = np.full((len(cells), 1), batch, np.int32)
    return np.concatenate([ids, cells.astype(np.int32)], axis=1)


def _scatter(rng: np.random.Generator, grid: Axes, shares: dict[int, float]) -> Coords:
    """A share of each sample's cells, in random order; sample after sample."""
    parts = []
    for batch, share in shares.items():
        cells = np.argwhere(rng.random(grid) < share).astype(np.int32)
        rng.shuffle(cells)
        parts.append(_row(batch, cells))
    return np.concatenate(parts)


def _interleaved(rng: np.random.Generator, grid: Axes) -> Coords:
    rows = _scatter(rng, grid, {0: 0.25, 1: 0.25, 2: 0.25})
    rng.shuffle(rows)
    return rows


def _duplicates(rng: np.random.Generator, grid: Axes) -> Coords:
    rows = _scatter(rng, grid, {0: 0.3})
    twice = np.concatenate([rows, rows[::2], rows[::3]])
    rng.shuffle(twice)
    return twice


_CLOUDS: dict[str, Callable[[np.random.Generator, Axes], Coords]] = {
    "empty": lambda rng, grid: np.zeros((0, 1 + len(grid)), np.int32),
    "one": lambda rng, grid: np.array([[0, *(n // 2 for n in grid)]], np.int32),
    "line": lambda rng, grid: _row(0, np.argwhere(np.ones((*[1] * (len(grid) - 1), grid[-1])))),
    "block": lambda rng, grid: _row(0, np.argwhere(np.ones([min(n, 3) for n in grid]))),
    "random": lambda rng, grid: _scatter(rng, grid, {0: 0.3}),
    # Samples 1 and 4 of five are empty.
    "batches": lambda rng, grid: _scatter(rng, grid, {0: 0.2, 2: 0.3, 3: 0.05}),
    # The batch column goes up and down.
    "interleaved": _interleaved,
    "negative": lambda rng, grid: (
        _scatter(rng, grid, {0: 0.25, 1: 0.25})
        - np.array([0, *(n // 2 + 1 for n in grid)], np.int32)
    ),
    "duplicates": _duplicates,
}

CLOUD_NAMES = tuple(_CLOUDS)


def cloud(name: str, ndim: int) -> Coords:
    """Coordinates of a named cloud, ``[N, 1 + ndim]`` int32; the same on every call."""
    if name not in _CLOUDS:
        raise ValueError(f"name must be one of {', '.join(CLOUD_NAMES)}, got {name}")
    return _CLOUDS[name](np.random.default_rng([ndim, CLOUD_NAMES.index(name)]), GRID[ndim])


BATCH_SIZE = 5
"""A batch size that holds every cloud; some samples stay empty."""


def cases(*, duplicates: bool = False, submanifold: bool = False) -> Iterator[Case]:
    """Clouds under geometries: all clouds in 3-D for the first five, then a few for each other.

    Args:
        duplicates: also the cloud in which sites repeat.
        submanifold: only geometries a submanifold layer can have.
    """
    for index, geometry in enumerate(GEOMETRIES):
        if submanifold and not geometry.submanifold:
            continue
        for name in CLOUD_NAMES:
            if name == "duplicates" and not duplicates:
                continue
            few = ("interleaved", "negative", "duplicates")
            if index < 5 or name in few or (name == "empty" and geometry.ndim != 3):
                yield Case(name, geometry)
