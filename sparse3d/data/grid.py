"""From points to voxels, with every choice that changes the answer named.

Libraries differ in rounding (floor or round), in the point that stands for a voxel (first, mean,
random), in the arithmetic (float32 or float64) and in the origin. None of these is left implicit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Grid", "represent", "to_grid"]

_INT32 = 2**31 - 1


@dataclass(frozen=True)
class Grid:
    """The occupied voxels of a cloud, in order of first occurrence.

    Attributes:
        coords: int32 ``[V, 3]``, columns x, y, z as in the points.
        inverse: int64 ``[N]``, the voxel of each point.
        first: int64 ``[V]``, the first point of each voxel.
        size: Edge of a voxel in metres.
    """

    coords: npt.NDArray[np.int32]
    inverse: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    size: float

    def indices(self, batch: int = 0) -> npt.NDArray[np.int32]:
        """Rows ``(batch, z, y, x)`` as `SparseConvTensor` wants them."""
        column = np.full((len(self.coords), 1), batch, np.int32)
        return np.concatenate([column, self.coords[:, ::-1]], axis=1)

    def shape(self) -> tuple[int, int, int]:
        """Grid size ``(z, y, x)`` that holds all coordinates, when they start at zero."""
        top = self.coords.max(axis=0) + 1 if len(self.coords) else np.ones(3, np.int32)
        return int(top[2]), int(top[1]), int(top[0])


def to_grid(
    points: npt.NDArray[np.floating],
    size: float,
    *,
    rounding: str = "floor",
    origin: str = "min",
    dtype: str = "float32",
) -> Grid:
    """Voxels that hold at least one point.

    Args:
        points: ``[N, >=3]``, x, y, z first.
        size: Edge of a voxel, in the unit of the points.
        rounding: ``"floor"`` or ``"round"`` (half to even) of ``xyz / size``.
        origin: ``"min"`` subtracts the smallest coordinate of the scan after rounding, so the grid
            starts at zero; ``"zero"`` keeps signed coordinates.
        dtype: Arithmetic of the division, ``"float32"`` or ``"float64"``: points on voxel borders
            fall differently.

    Raises:
        ValueError: A coordinate is not finite or does not fit int32; the message has the extent.
    """
    if rounding not in ("floor", "round"):
        raise ValueError(f"rounding must be 'floor' or 'round', got {rounding!r}")
    if origin not in ("min", "zero"):
        raise ValueError(f"origin must be 'min' or 'zero', got {origin!r}")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype must be 'float32' or 'float64', got {dtype!r}")
    if not np.isfinite(size) or size <= 0:
        raise ValueError(f"size must be positive and finite, got {size}")
    if points.ndim != 2 or points.shape[1] < 3:
        raise ValueError(f"points must have shape [N, >=3], got {list(points.shape)}")
    xyz = points[:, :3].astype(dtype)
    if not np.isfinite(xyz).all():
        row = int(np.argmin(np.isfinite(xyz).all(axis=1)))
        raise ValueError(
            f"points must be finite, got {points[row, :3].tolist()} at row {row}; drop them first"
        )
    with np.errstate(over="ignore"):
        scaled = xyz / np.asarray(size, dtype)
    cells = (np.floor(scaled) if rounding == "floor" else np.rint(scaled)).astype(np.float64)
    if len(cells) == 0:
        empty = np.zeros(0, np.int64)
        return Grid(np.zeros((0, 3), np.int32), empty, empty.copy(), size)
    low, high = cells.min(axis=0), cells.max(axis=0)
    _check_extent(cells, xyz, low, high, size)
    whole = cells.astype(np.int64) - (low.astype(np.int64) if origin == "min" else 0)
    first, inverse = _unique_rows(whole)
    return Grid(whole[first].astype(np.int32), inverse, first, size)


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
        order = rng.permutation(len(values))
        pick = np.empty(len(grid.coords), np.int64)
        pick[grid.inverse[order]] = order
        return values[pick]
    raise ValueError(f"how must be 'first', 'mean' or 'random', got {how!r}")


def _check_extent(
    cells: npt.NDArray[np.float64],
    xyz: npt.NDArray[np.floating],
    low: npt.NDArray[np.float64],
    high: npt.NDArray[np.float64],
    size: float,
) -> None:
    for axis, name in enumerate("xyz"):
        if high[axis] > _INT32 or low[axis] < -_INT32 - 1 or high[axis] - low[axis] >= _INT32:
            row = int(np.argmax(np.abs(cells[:, axis])))
            raise ValueError(
                f"points must give voxel coordinates within int32, got {name} from "
                f"{float(xyz[:, axis].min()):g} to {float(xyz[:, axis].max()):g} (extent "
                f"{high[axis] - low[axis] + 1:.4g} voxels of {size:g}; farthest is point {row}); "
                "remove outliers or take larger voxels"
            )


def _unique_rows(
    cells: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First row and inverse of distinct rows, numbered by first occurrence."""
    span = cells.max(axis=0) - cells.min(axis=0) + 1
    shifted = cells - cells.min(axis=0)
    if float(span[0]) * float(span[1]) * float(span[2]) < 2**62:
        key = (shifted[:, 0] * span[1] + shifted[:, 1]) * span[2] + shifted[:, 2]
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    else:
        _, first, inverse = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank[inverse.reshape(-1)].astype(np.int64)
