"""Height above ground, estimated from the scan alone.

A network that sees raw z learns the mounting height and slope of its training scans. Height above a
lower envelope of the cloud carries over to other cars and hills.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["height_above_ground"]

_CELL = 1.5  # metres
_REACH = 90.0  # metres; points beyond take the nearest cell
_SLOPE = 0.22  # steepest believable ground, metres per metre
_ENOUGH = 3  # points in a cell before its low end is trusted


def height_above_ground(points: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Height of each point over a slope-limited lower envelope of the cloud.

    Stray returns from below the ground are ignored: a cell is represented by its third-lowest
    point, and cells far below the median of their surroundings are left out.

    Args:
        points: ``[N, >=3]``, x, y, z in metres; all finite.
    """
    if len(points) == 0:
        return np.zeros(0, np.float32)
    xyz = points[:, :3].astype(np.float32)
    side = int(2 * _REACH / _CELL)
    cell = np.clip((xyz[:, :2] + _REACH) / _CELL, 0, side - 1e-3)
    index = cell.astype(np.int64)
    flat = index[:, 0] * side + index[:, 1]
    low = _low_ends(flat, xyz[:, 2], side)
    low = _envelope(low)
    return xyz[:, 2] - _bilinear(low, cell - 0.5)


def _low_ends(
    flat: npt.NDArray[np.int64], z: npt.NDArray[np.float32], side: int
) -> npt.NDArray[np.float32]:
    """Third-lowest z of each cell, ``inf`` where there are too few points."""
    order = np.lexsort((z, flat))
    cells, start, count = np.unique(flat[order], return_index=True, return_counts=True)
    rank = np.minimum(_ENOUGH - 1, count - 1)
    value = z[order][start + rank]
    if (count >= _ENOUGH).any():
        cells, value = cells[count >= _ENOUGH], value[count >= _ENOUGH]
    low = np.full(side * side, np.inf, np.float32)
    low[cells] = value
    table = low.reshape(side, side)
    known = np.isfinite(table)
    # A cell far under the middle of its 15 m surroundings holds mirrored returns, not ground.
    coarse = 10
    padded = np.where(known, table, np.nan).reshape(side // coarse, coarse, side // coarse, coarse)
    blocks = padded.transpose(0, 2, 1, 3).reshape(side // coarse, side // coarse, -1)
    middle = np.full(blocks.shape[:2], np.nan, np.float32)
    some = np.isfinite(blocks).any(axis=2)
    middle[some] = np.nanmedian(blocks[some], axis=1)
    limit = np.repeat(np.repeat(middle, coarse, 0), coarse, 1) - 4.0
    with np.errstate(invalid="ignore"):
        table[known & (table < limit)] = np.inf
    return table


def _envelope(low: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Largest surface under ``low`` that is nowhere steeper than believable ground."""
    if not np.isfinite(low).any():
        return np.zeros_like(low)
    for reach in (1, 2, 4, 8, 16, 32, 64, 32, 16, 8, 4, 2, 1, 1):
        rise = np.float32(_SLOPE * _CELL * reach)
        for axis in (0, 1):
            padded = np.pad(low, [(reach, reach) if a == axis else (0, 0) for a in (0, 1)],
                            constant_values=np.inf)  # fmt: skip
            size = low.shape[axis]
            before = padded.take(range(size), axis) + rise
            after = padded.take(range(2 * reach, 2 * reach + size), axis) + rise
            low = np.minimum(low, np.minimum(before, after))
    return low


def _bilinear(
    table: npt.NDArray[np.float32], at: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    top = len(table) - 2
    base = np.clip(np.floor(at), 0, top).astype(np.int64)
    part = np.clip(at - base, 0, 1).astype(np.float32)
    x, y = base[:, 0], base[:, 1]
    u, v = part[:, 0], part[:, 1]
    near = table[x, y] * (1 - v) + table[x, y + 1] * v
    far = table[x + 1, y] * (1 - v) + table[x + 1, y + 1] * v
    return np.asarray(near * (1 - u) + far * u, np.float32)
