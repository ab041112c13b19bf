"""PCD of the Point Cloud Library: ascii, binary and binary_compressed."""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sparse3d.data.cloud import PointCloud, build
from sparse3d.data.kitti import ScanError, file_bytes
from sparse3d.data.readers._shared import check_expansion, library, refusing

__all__ = ["read"]

_HEADER = 2**16
_NEEDED = ("FIELDS", "SIZE", "TYPE", "WIDTH", "HEIGHT", "DATA")
_SIZES = {"F": (4, 8), "U": (1, 2, 4, 8), "I": (1, 2, 4, 8)}
_KINDS = ("ascii", "binary", "binary_compressed")


@dataclass(frozen=True)
class _Header:
    fields: tuple[str, ...]
    sizes: tuple[int, ...]
    types: tuple[str, ...]
    counts: tuple[int, ...]
    width: int
    height: int
    data: str
    start: int

    @property
    def points(self) -> int:
        return self.width * self.height

    @property
    def row(self) -> int:
        return sum(size * count for size, count in zip(self.sizes, self.counts, strict=True))

    def lines(self) -> bytes:
        """The header in the one form that the library knows; fields by number, in order."""
        lists = (
            ("FIELDS", [f"f{number}" for number in range(len(self.fields))]),
            ("SIZE", self.sizes),
            ("TYPE", self.types),
            ("COUNT", self.counts),
        )
        lines = ["VERSION 0.7", *(f"{key} {' '.join(map(str, words))}" for key, words in lists)]
        lines += [f"WIDTH {self.width}", f"HEIGHT {self.height}", "VIEWPOINT 0 0 0 1 0 0 0"]
        lines += [f"POINTS {self.points}", f"DATA {self.data}", ""]
        return "\n".join(lines).encode("latin-1")


def read(path: Path, size: int, *, drop_invalid: bool) -> PointCloud:
    """Read all fields; points without a return in an organised cloud are left out."""
    raw = file_bytes(path, size)
    header = _header(path, raw)
    body = raw[header.start :]
    _check_counts(path, header, body, size)
    pypcd4 = library(path, "pypcd4")
    if header.data == "ascii":
        body = re.sub(rb"[ \t]+", b" ", re.sub(rb"(?m)^[ \t]+|[ \t\r]+$", b"", body))
        _check_rows(path, header, body)
    with refusing(path, f"{header.data} data"):
        cloud = pypcd4.PointCloud.from_fileobj(io.BytesIO(header.lines() + body))
    table = np.atleast_1d(cloud.pc_data)
    columns = _columns(header, table)
    lowered = {name.lower(): name for name in columns}
    xyz = [columns.pop(lowered[axis]) for axis in "xyz"]
    if any(column.ndim > 1 for column in xyz):
        raise ScanError(f"{path}: x, y and z must have COUNT 1, got {list(header.counts)}")
    points = np.stack(xyz, axis=1)
    return build(
        path,
        "pcd",
        points,
        _unpacked(columns),
        drop_invalid=drop_invalid,
        gaps=header.height > 1,
    )


def _header(path: Path, raw: bytes) -> _Header:
    match = re.compile(rb"^DATA[ \t]+(\w+)[^\n]*(?:\n|$)", re.MULTILINE).search(raw, 0, _HEADER)
    if match is None:
        raise ScanError(
            f"{path}: must begin with a PCD header that ends with a line DATA within {_HEADER} "
            f"bytes, got {raw[:24]!r}; the header is missing"
        )
    entries: dict[str, list[str]] = {}
    for line in raw[: match.end()].decode("latin-1").splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            entries[words[0].upper()] = words[1:]
    lacks = [key for key in _NEEDED if not entries.get(key)]
    if lacks:
        raise ScanError(f"{path}: header must have {lacks[0]}, got none; the header is damaged")
    try:
        return _parsed(path, entries, match.end())
    except ValueError as error:
        if isinstance(error, ScanError):
            raise
        raise ScanError(
            f"{path}: header must hold whole numbers for sizes and counts, got {error}; the header "
            "is damaged"
        ) from None


def _parsed(path: Path, entries: dict[str, list[str]], start: int) -> _Header:
    fields = tuple(entries["FIELDS"])
    header = _Header(
        fields=fields,
        sizes=tuple(map(int, entries["SIZE"])),
        types=tuple(word.upper() for word in entries["TYPE"]),
        counts=tuple(map(int, entries.get("COUNT") or ["1"] * len(fields))),
        width=int(entries["WIDTH"][0]),
        height=int(entries["HEIGHT"][0]),
        data=entries["DATA"][0].lower(),
        start=start,
    )
    columns = {len(header.sizes), len(header.types), len(header.counts), len(fields)}
    if len(columns) != 1:
        raise ScanError(f"{path}: FIELDS, SIZE, TYPE and COUNT must be of one length, got "
                        f"{len(fields)}, {len(header.sizes)}, {len(header.types)} and "
                        f"{len(header.counts)} entries")  # fmt: skip
    for name, kind, size, count in zip(
        fields, header.types, header.sizes, header.counts, strict=True
    ):
        if size not in _SIZES.get(kind, ()) or count < 1:
            raise ScanError(
                f"{path}: field {name} must be F of 4 or 8 bytes, or U or I of 1 to 8, with a "
                f"count of at least 1, got {kind} of {size} bytes, count {count}"
            )
    if header.data not in _KINDS:
        raise ScanError(f"{path}: DATA must be one of {', '.join(_KINDS)}, got {header.data}")
    small = [name.lower() for name in fields if name != "_"]
    if any(small.count(axis) != 1 for axis in "xyz") or len(set(small)) != len(small):
        raise ScanError(f"{path}: fields must have x, y, z and no name twice, got {list(fields)}")
    if header.width < 0 or header.height < 0:
        raise ScanError(f"{path}: WIDTH and HEIGHT must not be negative, got {header.width} and "
                        f"{header.height}")  # fmt: skip
    promised = int(entries["POINTS"][0]) if entries.get("POINTS") else header.points
    if promised != header.points:
        raise ScanError(
            f"{path}: POINTS must be WIDTH x HEIGHT = {header.points}, got {promised}; the header "
            "is damaged"
        )
    return header


def _check_counts(path: Path, header: _Header, body: bytes, size: int) -> None:
    """Compare what the header promises with the bytes that follow it."""
    have = len(body)
    if header.data == "ascii":
        need = 2 * sum(header.counts) * header.points - 1
    elif header.data == "binary":
        need = header.row * header.points
    else:
        need = 8
        if have >= 8:
            packed, unpacked = struct.unpack("<II", body[:8])
            need += packed
            if unpacked != header.row * header.points:
                raise ScanError(
                    f"{path}: compressed data must unpack to the header's {header.points} points "
                    f"of {header.row} bytes, got {unpacked} bytes; the header is damaged"
                )
            check_expansion(path, unpacked, size)
    if need > have:
        raise ScanError(
            f"{path}: {header.points} {header.data} points must fit the file, got {have} bytes "
            f"from byte {header.start} on where {need} are needed; the file is cut off or its "
            "header is damaged"
        )


def _check_rows(path: Path, header: _Header, body: bytes) -> None:
    """As many numbers in each row of text as the header has."""
    wanted = sum(header.counts)
    rows = 0
    for line in io.BytesIO(body):
        words = len(line.split())
        if words not in (wanted, 0):
            raise ScanError(
                f"{path}: point {rows} must have {wanted} numbers with blanks between them, got "
                f"{line.decode('latin-1').strip()[:40]!r}; the file is damaged or not PCD"
            )
        rows += bool(words)
    if rows != header.points:
        raise ScanError(f"{path}: must hold the {header.points} points of its header, got {rows}")


def _columns(header: _Header, table: Any) -> dict[str, npt.NDArray[np.generic]]:
    """Fields by their own names, padding left out."""
    flat = [np.ascontiguousarray(table[name]) for name in table.dtype.names]
    found: dict[str, npt.NDArray[np.generic]] = {}
    at = 0
    for name, count in zip(header.fields, header.counts, strict=True):
        if name != "_":
            found[name] = flat[at] if count == 1 else np.stack(flat[at : at + count], axis=1)
        at += count
    return found


def _unpacked(
    columns: dict[str, npt.NDArray[np.generic]],
) -> dict[str, npt.NDArray[np.generic]]:
    """Colours that PCD packs into the four bytes of one number, as red, green, blue."""
    found: dict[str, npt.NDArray[np.generic]] = {}
    for name, values in columns.items():
        if name.lower() in ("rgb", "rgba") and values.ndim == 1 and values.itemsize == 4:
            packed = values.view(np.uint32)
            shifted = np.stack([packed >> shift & 0xFF for shift in (16, 8, 0)], axis=1)
            found["rgb"] = shifted.astype(np.uint8)
        else:
            found[name] = values
    return found
