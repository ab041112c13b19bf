"""Float32 tables without a header: nothing but size and values says what they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from sparse3d.data.cloud import PointCloud, build
from sparse3d.data.columns import MAX_COORDINATE, advice, head_of
from sparse3d.data.kitti import DROP, ScanError, are_outliers, file_bytes, read_scan

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
            f"{size - size % width}); "
            + (advice(head_of(path), size, layout) or "the file is cut off or has another layout")
        )
    raw = file_bytes(path, size)
    table = np.frombuffer(raw, "<f4").reshape(-1, len(columns))
    low = np.array([-MAX_COORDINATE] * 3 + [0.0] * (len(columns) - 3), np.float32)
    high = np.array([MAX_COORDINATE] * 3 + [255.0] * (len(columns) - 3), np.float32)
    with np.errstate(invalid="ignore"):
        wrong = (table < low) | (table > high)
        wrong &= np.isfinite(table)
        if layout == "nuscenes":
            wrong[:, 4] |= table[:, 4] != np.floor(table[:, 4])
    far = np.asarray(wrong[:, :3].any(axis=1))
    outliers = bool(far.any()) and are_outliers(far) and not wrong[~far].any()
    if wrong.any() and not (drop_invalid and outliers):
        row = int(np.argmax(wrong.any(axis=1)))
        column = int(np.argmax(wrong[row]))
        other = f"the file is damaged or has another layout than {layout}"
        way_out = advice(raw, size, layout) or (DROP if outliers else other)
        raise ScanError(
            f"{path}: {columns[column]} of point {row} (byte {row * width + 4 * column}) must "
            f"be{' a whole number' if columns[column] == 'ring' else ''} in "
            f"[{low[column]:g}, {high[column]:g}], got {table[row, column]:g}; {way_out}"
        )
    attributes = {name: table[:, i] for i, name in enumerate(columns) if i > 2}
    places = table[:, :3]
    limit = MAX_COORDINATE
    return build(path, layout, places, attributes, drop_invalid=drop_invalid, limit=limit)
