"""LAS and LAZ: aerial and mobile lidar, coordinates as scaled integers."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparse3d.data.cloud import PointCloud, build
from sparse3d.data.kitti import ScanError, file_bytes
from sparse3d.data.readers._laz import RECORD, check_laz
from sparse3d.data.readers._shared import check_expansion, library, refusing

__all__ = ["read"]

_LEAST = 227  # bytes of the header of LAS 1.0 to 1.2
_ROWS = (20, 28, 26, 34, 57, 63, 30, 36, 38, 59, 67)  # bytes of a point of each format
_GEO_KEYS = 34735


def read(path: Path, size: int, *, drop_invalid: bool) -> PointCloud:
    """Read coordinates in float64 and every dimension of the point format."""
    _check(path, file_bytes(path, size), size)
    laspy = library(path, "laspy")
    with refusing(path, "points"):
        table = laspy.read(path)
        points = np.asarray(table.xyz, np.float64)
        attributes: dict[str, npt.NDArray[np.generic]] = {
            name: np.array(table[name])
            for name in table.point_format.dimension_names
            if name not in ("X", "Y", "Z")
        }
    return build(path, "las", points, attributes, drop_invalid=drop_invalid)


def _check(path: Path, raw: bytes, size: int) -> None:
    """Compare the header's counts with the file's size; laspy believes them."""
    if raw[:4] != b"LASF" or size < _LEAST:
        raise ScanError(
            f"{path}: must begin with LASF and a header of {_LEAST} bytes at least, got "
            f"{raw[:4]!r} in a file of {size} bytes"
        )
    minor = raw[25]
    header, start, records = struct.unpack_from("<HII", raw, 94)
    kind, row, count = struct.unpack_from("<BHI", raw, 104)
    if minor >= 4 and header >= 375 and size >= 375:
        extra_at, extra = struct.unpack_from("<QI", raw, 235)
        (count,) = struct.unpack_from("<Q", raw, 247)
        _check_records(path, raw, extra_at if extra else size, extra, size, 60)
    if not _LEAST <= header <= start <= size:
        raise ScanError(
            f"{path}: points must begin after the header and within the file, got header "
            f"{header}, points from byte {start} on, file {size} bytes; the header is damaged"
        )
    _check_records(path, raw, header, records, start, 54)
    if kind & 0x3F >= len(_ROWS) or row < _ROWS[kind & 0x3F]:
        raise ScanError(
            f"{path}: points must have a format from 0 to {len(_ROWS) - 1} and its size, got "
            f"format {kind & 0x3F} of {row} bytes (byte 104)"
        )
    if kind & 0xC0:
        check_expansion(path, count * row, size)
        check_laz(path, raw, _find(raw, header, records, *RECORD), start, row)
    elif count * row > size - start:
        raise ScanError(
            f"{path}: {count} points of {row} bytes must fit the file, got {size - start} bytes "
            f"from byte {start} on; the file is cut off or its header is damaged"
        )
    scales = struct.unpack_from("<6d", raw, 131)
    if not np.isfinite(scales).all() or min(scales[:3]) <= 0:
        raise ScanError(
            f"{path}: scales must be positive and offsets finite, got {list(scales)} (byte 131)"
        )


def _find(raw: bytes, at: int, count: int, user: bytes, number: int) -> bytes | None:
    """What a variable length record holds; the records have been checked."""
    for _ in range(count):
        kind, length = struct.unpack_from("<HH", raw, at + 18)
        if raw[at + 2 : at + 18].rstrip(b"\0") == user and kind == number:
            return raw[at + 54 : at + 54 + length]
        at += 54 + length
    return None


def _check_records(path: Path, raw: bytes, at: int, count: int, end: int, head: int) -> None:
    """Walk the variable length records; each must lie whole before ``end``."""
    for number in range(count):
        length = 0
        if at + head <= end:
            length = struct.unpack_from("<H" if head == 54 else "<Q", raw, at + 20)[0]
        if at + head + length > end:
            raise ScanError(
                f"{path}: {count} variable length records must end before byte {end}, got record "
                f"{number} at byte {at} with {length} bytes; the header is damaged"
            )
        user = raw[at + 2 : at + 18].rstrip(b"\0")
        (record,) = struct.unpack_from("<H", raw, at + 18)
        if user == b"LASF_Projection" and record == _GEO_KEYS:
            _check_geo_keys(path, raw[at + head : at + head + length], at + head)
        at += head + length


def _check_geo_keys(path: Path, record: bytes, at: int) -> None:
    """The directory of geo keys: a count, and as many entries of ascending key."""
    words = struct.unpack(f"<{len(record) // 2}H", record[: len(record) // 2 * 2])
    count = words[3] if len(words) >= 4 else 0
    if len(words) < 4 + 4 * count:
        raise ScanError(
            f"{path}: geo keys (byte {at}) must have {count} entries of 8 bytes, got {len(record)} "
            "bytes; the record is damaged"
        )
    before = 0
    for number in range(count):
        key = words[4 + 4 * number]
        if key <= before:
            raise ScanError(
                f"{path}: geo key {number} (byte {at + 8 + 8 * number}) must be larger than "
                f"{before}, got {key}; the record is damaged: write the file again without it"
            )
        before = key
