"""NumPy files: ``.npy`` tables and ``.npz`` archives of named arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from sparse3d.data.cloud import PointCloud, build
from sparse3d.data.kitti import ScanError
from sparse3d.data.readers._shared import check_expansion, refusing

__all__ = ["read"]

_Found = tuple[npt.NDArray[np.generic], dict[str, npt.NDArray[np.generic]]]
_NAMES = ("points", "xyz", "pc", "coord", "pos", "positions", "point_cloud", "vertices")


def read(path: Path, size: int, *, drop_invalid: bool) -> PointCloud:
    """Read ``[N, >=3]`` or a record array with x, y, z; or an archive that holds such arrays."""
    if path.suffix.lower() == ".npy":
        points, attributes = _table(path, "the array", _load_npy(path, size))
        return build(path, "npy", points, attributes, drop_invalid=drop_invalid)
    members = _load_npz(path, size)
    points, attributes = _members(path, members)
    return build(path, "npz", points, attributes, drop_invalid=drop_invalid)


def _load_npy(path: Path, size: int) -> npt.NDArray[np.generic]:
    with refusing(path, "npy header"):
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                _header(path, "the array", file)
        # A map of the file allocates nothing.
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(table, np.memmap):
        raise ScanError(f"{path}: must be a .npy file, got an archive; name it .npz")
    spare = size - table.offset - table.nbytes
    if spare:
        raise ScanError(
            f"{path}: must end with its array at byte {size - spare}, got {spare} bytes more"
        )
    return np.array(table)


def _load_npz(path: Path, size: int) -> dict[str, npt.NDArray[np.generic]]:
    with refusing(path, "npz archive"), zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        check_expansion(path, sum(info.file_size for info in infos), size)
        for info in infos:
            _check_member(path, archive, info)
        with np.load(path, allow_pickle=False) as table:
            return {name: table[name] for name in table.files}


def _check_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Compare a member's shape with its length before it is read."""
    with archive.open(info) as file:
        shape, dtype = _header(path, info.filename, file)
        count = 1
        for length in shape:
            count *= length
        if file.tell() + count * dtype.itemsize != info.file_size:
            raise ScanError(
                f"{path}: {info.filename} must hold {count * dtype.itemsize} bytes for shape "
                f"{list(shape)} of {dtype}, got {info.file_size - file.tell()}"
            )


def _header(path: Path, name: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array; what could run code is refused."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ScanError(f"{path}: {name} must have npy format 1 or 2, got {version}")
    if dtype.hasobject:
        raise ScanError(f"{path}: {name} must hold numbers, got Python objects")
    return shape, dtype


def _members(path: Path, members: Mapping[str, npt.NDArray[np.generic]]) -> _Found:
    """Points and what goes with them, from columns x, y, z or from one table of a known name."""
    attributes: dict[str, npt.NDArray[np.generic]] = {}
    if all(name in members and members[name].ndim == 1 for name in "xyz"):
        lengths = {len(members[name]) for name in "xyz"}
        if len(lengths) != 1:
            raise ScanError(f"{path}: x, y and z must have one length, got {sorted(lengths)}")
        points = np.stack([members[name] for name in "xyz"], axis=1)
        used = set("xyz")
    else:
        found = [name for name in _NAMES if name in members]
        if not found:
            raise ScanError(
                f"{path}: must hold x, y and z, or one of {', '.join(_NAMES)}, got "
                f"{', '.join(sorted(members)) or 'nothing'}; rename the array of points"
            )
        used = {found[0]}
        points, attributes = _table(path, found[0], members[found[0]])
    for name, values in members.items():
        if name not in used and values.ndim in (1, 2) and len(values) == len(points):
            attributes[name] = values
    return points, attributes


def _table(path: Path, name: str, table: npt.NDArray[Any]) -> _Found:
    fields = table.dtype.names
    if fields is not None:
        lacks = [axis for axis in "xyz" if axis not in fields]
        if lacks or table.ndim != 1:
            raise ScanError(f"{path}: {name} must be [N] with fields x, y, z, got {list(fields)}")
        points = np.stack([table[axis] for axis in "xyz"], axis=1)
        return points, {f: np.ascontiguousarray(table[f]) for f in fields if f not in "xyz"}
    if table.ndim != 2 or table.shape[1] < 3:
        raise ScanError(f"{path}: {name} must have shape [N, >=3], got {list(table.shape)}")
    if not (np.issubdtype(table.dtype, np.floating) or np.issubdtype(table.dtype, np.integer)):
        raise ScanError(f"{path}: {name} must hold real numbers, got {table.dtype}")
    return table[:, :3], {f"column_{i}": table[:, i] for i in range(3, table.shape[1])}
