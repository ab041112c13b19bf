"""Output files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparse3d._atomic import PathLike, atomic

__all__ = ["atomic", "check_folder", "write_labels", "write_ply", "write_scan"]


def check_folder(name: str, path: PathLike) -> None:
    """Refuse a place for results that cannot be made or written, before any work is done.

    Raises:
        ValueError: It is a file, or lies where this user may not write; one line.
    """
    place = Path(path).absolute()
    while not place.exists() and place.parent != place:
        if place.is_symlink():
            raise ValueError(f"{name} must be a folder, got the broken link {place}; name another")
        place = place.parent
    if not place.is_dir():
        raise ValueError(f"{name} must be a folder, got the file {place}; name another place")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"{name} must be writable, got {path} in {place}; name another place")


def write_labels(path: PathLike, labels: npt.NDArray[np.uint32]) -> None:
    """Write a SemanticKITTI ``.label``: one little-endian uint32 per point, in scan order."""
    if labels.dtype != np.uint32 or labels.ndim != 1:
        raise TypeError(f"labels must be uint32 [N], got {labels.dtype} {list(labels.shape)}")
    with atomic(path) as file:
        file.write(labels.astype("<u4").tobytes())


def write_scan(path: PathLike, points: npt.NDArray[np.float32]) -> None:
    """Write a KITTI ``.bin``: little-endian float32 x, y, z, remission."""
    if points.ndim != 2 or points.shape[1] != 4:
        raise ValueError(f"points must have shape [N, 4], got {list(points.shape)}")
    with atomic(path) as file:
        file.write(points.astype("<f4").tobytes())


def write_ply(
    path: PathLike,
    points: npt.NDArray[np.floating],
    colors: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.uint32] | None = None,
) -> None:
    """Write a binary PLY with colours, which every point-cloud viewer opens.

    Args:
        path: The file.
        points: ``[N, >=3]``, x, y, z.
        colors: uint8 ``[N, 3]``, red, green, blue.
        labels: Class of each point, stored as property ``label``.
    """
    if len(points) != len(colors):
        raise ValueError(f"colors must have {len(points)} rows, got {len(colors)}")
    fields = [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("red", "u1"), ("green", "u1")]
    fields += [("blue", "u1")] + ([("label", "<u4")] if labels is not None else [])
    table = np.empty(len(points), dtype=fields)
    for column, name in enumerate("xyz"):
        table[name] = points[:, column]
    for column, name in enumerate(("red", "green", "blue")):
        table[name] = colors[:, column]
    if labels is not None:
        table["label"] = labels
    kinds = {"<f4": "float", "u1": "uchar", "<u4": "uint"}
    header = ["ply", "format binary_little_endian 1.0", "comment made by sparse3d"]
    header += [f"element vertex {len(table)}"]
    header += [f"property {kinds[kind]} {name}" for name, kind in fields] + ["end_header", ""]
    with atomic(path) as file:
        file.write("\n".join(header).encode("ascii"))
        file.write(table.tobytes())
