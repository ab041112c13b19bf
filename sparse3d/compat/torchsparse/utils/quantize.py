"""Points to voxels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .... import _check

__all__ = ["ravel_hash", "sparse_quantize"]

Array = npt.NDArray[Any]


def ravel_hash(x: Array) -> npt.NDArray[np.uint64]:
    """Row-major cell number of each row in the bounding box."""
    moved = (x - x.min(axis=0)).astype(np.uint64)
    extent = moved.max(axis=0) + np.uint64(1)
    keys = np.zeros(len(x), np.uint64)
    for column, size in zip(moved.T, extent, strict=True):
        keys = keys * size + column
    return keys


def _ranked(cells: Array) -> Array:
    """`ravel_hash`, or where its product would pass 64 bits the same order by sorting."""
    extent = [int(n) + 1 for n in cells.max(axis=0).astype(np.int64) - cells.min(axis=0)]
    if math.prod(extent) < 2**64:
        return ravel_hash(cells.astype(np.int64))
    return np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)


def sparse_quantize(
    coords: Array,
    voxel_size: float | tuple[float, ...] = 1,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
) -> Any:
    """Voxels of points, in the order of `ravel_hash`.

    Args:
        coords: [N, 3].
        voxel_size: edge, or one an axis.
        return_index: give the first point of each voxel too.
        return_inverse: give each point's voxel too.
    """
    sizes = np.broadcast_to(np.asarray(voxel_size, np.float64), (coords.shape[1],))
    if (sizes <= 0).any():
        _check.fail("voxel_size", "> 0", voxel_size)
    floored = np.floor(coords / sizes)
    if floored.size and not (np.abs(floored) < 2**31).all():
        got = f"{floored.min():g}..{floored.max():g}"
        _check.fail("coords / voxel_size", "within int32", got, "drop far or invalid points")
    cells = floored.astype(np.int32)
    if len(cells) == 0:
        empty = np.zeros(0, np.int64)
        made = [cells, *[empty] * return_index, *[empty] * return_inverse]
        return made[0] if len(made) == 1 else tuple(made)
    _, first, inverse = np.unique(_ranked(cells), return_index=True, return_inverse=True)
    made = [cells[first]]
    if return_index:
        made.append(first)
    if return_inverse:
        made.append(inverse.reshape(-1))
    return made[0] if len(made) == 1 else tuple(made)
