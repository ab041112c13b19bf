"""Float32 tables without a header: nothing but size and values says what they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sparse3d.data.cloud import PointCloud, build
from sparse3d.data.kitti import MAX_COORDINATE, ScanError, file_bytes, read_scan

__all__ = ["LAYOUTS", "read"]

LAYOUTS: Mapping[str, tuple[str, ...]] = {
    "kitti": ("x", "y", "z", "remission"),
    "nuscenes": ("x", "y", "z", "intensity", "ring"),
    "xyzrgb": ("x", "y", "z", "red", "green", "blue"),
    "xyz": ("x", "y", "z"),
}
"""Columns by name of the layout, all float32, little-endian."""


def read(path: Path, size: int, layout: str, *, drop_invalid: bool) -> PointCloud:
    """Read a table and check that its values are believable for the layout."""
    if layout not in LAYOUTS:
        raise ScanError(f"{path}: layout must be one of {list(LAYOUTS)}, got {layout!r}")
    columns = LAYOUTS[layout]
    if size == 0:
        raise ScanError(f"{path}: must hold at least one point, got an empty file")
    if layout == "kitti":
        scan = read_scan(path, drop_invalid=drop_invalid)
        attributes = {"remission": scan.points[:, 3]}
        return PointCloud(
            path, layout, scan.points[:, :3], attributes, scan.rows, scan.total, scan.notes
        )
    width = 4 * len(columns)
    if size % width:
        raise ScanError(
            f"{path}: size must be a multiple of {width} bytes (float32 {', '.join(columns)}), "
            f"got {size}: {size % width} bytes left after {size // width} points (byte "
            f"{size - size % width}); the file is cut off or has another layout"
        )
    table = np.frombuffer(file_bytes(path, size), "<f4").reshape(-1, len(columns))
    low = np.array([-MAX_COORDINATE] * 3 + [0.0] * (len(columns) - 3), np.float32)
    high = np.array([MAX_COORDINATE] * 3 + [255.0] * (len(columns) - 3), np.float32)
    with np.errstate(invalid="ignore"):
        wrong = (table < low) | (table > high)
        wrong &= np.isfinite(table)
        if layout == "nuscenes":
            wrong[:, 4] |= table[:, 4] != np.floor(table[:, 4])
    if wrong.any():
        row = int(np.argmax(wrong.any(axis=1)))
        column = int(np.argmax(wrong[row]))
        raise ScanError(
            f"{path}: {columns[column]} of point {row} (byte {row * width + 4 * column}) must "
            f"be{' a whole number' if columns[column] == 'ring' else ''} in "
            f"[{low[column]:g}, {high[column]:g}], got {table[row, column]:g}; the file is damaged "
            f"or has another layout than {layout}"
        )
    attributes = {name: table[:, i] for i, name in enumerate(columns) if i > 2}
    return build(path, layout, table[:, :3], attributes, drop_invalid=drop_invalid)
