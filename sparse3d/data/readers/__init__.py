"""One call that reads a point cloud of any of the known formats."""

from __future__ import annotations

import os
from pathlib import Path

from sparse3d.data.cloud import PointCloud
from sparse3d.data.kitti import ScanError, file_size, read_labels
from sparse3d.data.readers import arrays, las, pcd, ply, raw

__all__ = ["ENDINGS", "ending_of", "read_points", "scans_in", "stem_of"]

ENDINGS = (".pcd.bin", ".bin", ".ply", ".pcd", ".las", ".laz", ".npy", ".npz")
"""File names that `read_points` knows; capitals are as good."""


def read_points(
    path: str | os.PathLike[str], *, layout: str | None = None, drop_invalid: bool = False
) -> PointCloud:
    """Read a point cloud: KITTI ``.bin``, nuScenes ``.pcd.bin``, PLY, PCD, LAS, LAZ, npy or npz.

    The counts in a header are compared with the size of the file before anything is allocated, and
    nothing in a file is executed.

    Args:
        path: The file; its ending names the format.
        layout: What the columns of a ``.bin`` are, which has no header: ``kitti``, ``nuscenes``,
            ``xyzrgb`` or ``xyz``. If not given, ``nuscenes`` for ``.pcd.bin``, else ``kitti``. The
            values must be believable for it.
        drop_invalid: Leave out points with NaN or infinite coordinates instead of raising, and
            those beyond the limit (1000 m without a header, else 1e12) where at most a tenth are.
            Organised PCD files mark missing points so: there they are always left out, and noted.

    Raises:
        ScanError: The file cannot be such a cloud, or holds no points; one line with the file, what
            is wrong and where.
    """
    path = Path(path)
    ending = ending_of(path)
    if layout is not None and ending not in (".bin", ".pcd.bin"):
        raise ScanError(
            f"{path}: layout must be left out for files that have a header, got {layout!r}"
        )
    size = file_size(path)
    if ending in (".bin", ".pcd.bin"):
        if layout is None:
            layout = "nuscenes" if ending == ".pcd.bin" else "kitti"
        return raw.read(path, size, layout, drop_invalid=drop_invalid)
    if ending == ".ply":
        return ply.read(path, size, drop_invalid=drop_invalid)
    if ending == ".pcd":
        return pcd.read(path, size, drop_invalid=drop_invalid)
    if ending in (".las", ".laz"):
        return las.read(path, size, drop_invalid=drop_invalid)
    if ending in (".npy", ".npz"):
        return arrays.read(path, size, drop_invalid=drop_invalid)
    if ending == ".label":
        raise ScanError(
            f"{path}: must be a scan, got a label file of {len(read_labels(path))} labels; name "
            "the scan, and this file with --truth or --labels"
        )
    raise ScanError(
        f"{path}: must end in one of {', '.join(ENDINGS)}, got {path.name!r}; convert it first"
    )


def ending_of(path: Path) -> str:
    """The ending that names the format, small: ``.pcd.bin`` counts as one."""
    name = path.name.lower()
    return ".pcd.bin" if name.endswith(".pcd.bin") else Path(name).suffix


def stem_of(path: Path) -> str:
    """The file's name without the ending that names its format."""
    return path.name[: len(path.name) - len(ending_of(path))]


def scans_in(folder: Path) -> list[Path]:
    """The scans of a folder, sorted: its ``.bin`` files, or where it has none all that are known.

    Raises:
        ScanError: There is none.
    """
    try:
        known = [path for path in sorted(folder.iterdir()) if ending_of(path) in ENDINGS]
    except OSError as error:
        raise ScanError(f"{folder}: cannot be read: {error.strerror}") from None
    found = [path for path in known if ending_of(path) == ".bin"] or known
    if not found:
        raise ScanError(f"{folder}: must hold scans ({', '.join(ENDINGS)}), got none")
    return found
