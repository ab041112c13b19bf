"""From points to voxels, with every choice that changes the answer named.

Libraries differ in rounding (floor or round), in the point that stands for a voxel (first, mean,
random), in the arithmetic (float32 or float64) and in the origin. None of these is left implicit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from sparse3d.ops.coordinates import coordinate_unique
from sparse3d.ops.voxelize import quantize

__all__ = ["Grid", "passes", "random_points", "represent", "to_grid"]

_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Grid:
    """The occupied voxels of a cloud, in order of first occurrence.

    Attributes:
        coords: int32 ``[V, 3]``, columns x, y, z as in the points.
        inverse: int64 ``[N]``, the voxel of each point.
        first: int64 ``[V]``, the first point of each voxel.
        size: Edge of a voxel in metres.
        low: Voxel x, y, z (before that was subtracted) that became ``(0, 0, 0)``.
    """

    coords: npt.NDArray[np.int32]
    inverse: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    size: float
    low: tuple[int, int, int] = (0, 0, 0)

    def indices(self, batch: int = 0) -> npt.NDArray[np.int32]:
        """Rows ``(batch, z, y, x)`` as `SparseConvTensor` wants them."""
        column = np.full((len(self.coords), 1), batch, np.int32)
        return np.concatenate([column, self.coords[:, ::-1]], axis=1)

    def positions(self, points: npt.NDArray[np.floating], rounding: str) -> npt.NDArray[np.float32]:
        """Where points lie between voxels: float32 ``[N, 4]``, batch 0, then z, y, x.

        A voxel's value sits at its coordinate: the middle of the cell, under either rounding.
        """
        scaled = points[:, :3].astype(np.float64) / self.size - np.array(self.low)
        if rounding == "floor":
            scaled -= 0.5
        rows = np.zeros((len(points), 4), np.float32)
        rows[:, 1:] = scaled[:, ::-1]
        return rows

    def shape(self) -> tuple[int, int, int]:
        """Grid size ``(z, y, x)`` that holds all coordinates, when they start at zero."""
        top = self.coords.max(axis=0) + 1 if len(self.coords) else np.ones(3, np.int32)
        return int(top[2]), int(top[1]), int(top[0])


def to_grid(
    points: npt.ArrayLike,
    size: float,
    *,
    rounding: str = "floor",
    origin: str = "min",
    dtype: str = "float32",
) -> Grid:
    """Voxels that hold at least one point.

    Args:
        points: ``[N, >=3]``, x, y, z first: an array, a CPU tensor, or what numpy makes one of.
        size: Edge of a voxel, in the unit of the points.
        rounding: ``"floor"`` or ``"round"`` (half to even) of ``xyz / size``.
        origin: ``"min"`` subtracts the smallest coordinate of the scan after rounding, so the grid
            starts at zero; ``"zero"`` keeps signed coordinates.
        dtype: Arithmetic of the division, ``"float32"`` or ``"float64"``: points on voxel borders
            fall differently.

    Raises:
        ValueError: `size` is not finite and > 0, or a coordinate is not finite or does not fit
            int32; the message has the extent.
    """
    if origin not in ("min", "zero"):
        raise ValueError(f"origin must be 'min' or 'zero', got {origin!r}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    cloud = np.asarray(points)
    if cloud.ndim != 2 or cloud.shape[1] < 3:
        raise ValueError(f"points must have shape [N, >=3], got {list(cloud.shape)}")
    if not (math.isfinite(size) and size > 0):
        raise ValueError(f"size must be finite and > 0, got {size}")
    cells = quantize(torch.from_numpy(cloud[:, :3].astype(dtype)), size, rounding=rounding)
    start = (0, 0, 0)
    if origin == "min" and len(cells):
        low, high = torch.aminmax(cells.long(), dim=0)
        if bool((high - low > _INT32).any()):
            raise ValueError(
                "points must span at most int32 voxels from the smallest coordinate, "
                f"got an extent of {(high - low + 1).tolist()} voxels; drop far points"
            )
        cells = (cells - low).int()
        start = (int(low[0]), int(low[1]), int(low[2]))
    rows = torch.cat([cells.new_zeros((len(cells), 1)), cells], dim=1)
    first, inverse = coordinate_unique(rows)
    return Grid(cells[first].numpy(), inverse.numpy(), first.numpy(), size, start)


def represent(
    values: npt.NDArray[np.floating],
    grid: Grid,
    how: str = "first",
    rng: np.random.Generator | None = None,
) -> npt.NDArray[np.floating]:
    """One row of ``values`` per voxel.

    Args:
        values: ``[N, C]``, a row per point.
        grid: The voxels of those points.
        how: ``"first"`` point in scan order, ``"mean"`` (summed in float64), or a ``"random"`` one.
        rng: Source of the random choice; needed for ``"random"`` only.
    """
    if len(values) != len(grid.inverse):
        raise ValueError(f"values must have {len(grid.inverse)} rows, got {len(values)}")
    if how == "first":
        return values[grid.first]
    if how == "mean":
        voxels = len(grid.coords)
        counts = np.bincount(grid.inverse, minlength=voxels)
        sums = [np.bincount(grid.inverse, column, voxels) for column in values.T]
        mean = np.stack(sums, axis=1) if sums else np.zeros((voxels, 0))
        return (mean / np.maximum(counts, 1)[:, None]).astype(values.dtype)
    if how == "random":
        if rng is None:
            raise ValueError("rng must be a numpy Generator for how='random', got None")
        return values[random_points(grid, rng)]
    raise ValueError(f"how must be 'first', 'mean' or 'random', got {how!r}")


def random_points(grid: Grid, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """A random point of each voxel, int64 ``[V]``."""
    order = rng.permutation(len(grid.inverse))
    pick = np.empty(len(grid.coords), np.int64)
    pick[grid.inverse[order]] = order
    return pick


def passes(grid: Grid) -> Iterator[npt.NDArray[np.int64]]:
    """Each point of a voxel in turn: what stands for the voxels in pass 0, 1, ..., int64 ``[V]``.

    There are as many passes as the fullest voxel has points. Pass i has the one of each voxel whose
    place in scan order is i modulo their number, so that every point comes up at least once.
    """
    order = np.argsort(grid.inverse, kind="stable")
    counts = np.bincount(grid.inverse, minlength=len(grid.coords))
    starts = np.cumsum(counts) - counts
    for number in range(int(counts.max(initial=0))):
        yield order[starts + number % counts]
