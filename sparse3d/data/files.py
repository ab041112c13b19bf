"""Output files that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from sparse3d._atomic import PathLike, atomic

__all__ = ["alone_in", "atomic", "check_folder", "write_labels", "write_ply", "write_scan"]


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


@contextmanager
def alone_in(folder: PathLike) -> Iterator[None]:
    """Hold a folder for one process while it adds to what lies there; the folder is made.

    The system lets go when the process ends, however it ends: what is left of a killed one is no
    obstacle. A folder that is still empty at the end goes again.

    Raises:
        ValueError: Another process holds it; one line.
    """
    folder = Path(folder)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    mark = folder / ".running"
    file = _held(mark)
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)
        file.close()
        if made:
            with suppress(OSError):
                folder.rmdir()


def _held(mark: Path) -> BinaryIO:
    """The file of that name, open and locked."""
    import fcntl  # not on every platform

    while True:
        file = mark.open("ab")
        try:
            # Unlike those of flock, such locks do not pass to worker processes, which outlive a
            # killed parent for a while.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                file.close()
                raise ValueError(
                    f"{mark.parent}: must not be in use, got another process that writes into it; "
                    "wait for that, or name another --out"
                ) from None
            return file  # a file system without locks
        if mark.exists() and os.path.samestat(os.fstat(file.fileno()), mark.stat()):
            return file
        file.close()  # its last holder took it away in between


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
