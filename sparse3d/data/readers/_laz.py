"""What a LAZ decoder believes, checked first: damaged counts make it take any memory, and where
there is not so much end the process instead of raising."""

from __future__ import annotations

import io
import struct
from pathlib import Path

from sparse3d.data.kitti import ScanError
from sparse3d.data.readers._shared import check_expansion, library, refusing

__all__ = ["RECORD", "check_laz"]

RECORD = (b"laszip encoded", 22204)
"""User and number of the variable length record that says how points are packed."""

_ITEMS = 34  # where a record's list of items begins; six bytes each
_VARIABLE = 2**32 - 1  # as points of a chunk: the table says how many


def check_laz(path: Path, raw: bytes, record: bytes | None, start: int, row: int) -> None:
    """Refuse packed points whose items, chunks or bytes do not fit the file.

    Args:
        path: for messages.
        raw: the whole file.
        record: what `RECORD` holds, or None if there is none.
        start: where the points begin.
        row: bytes of an unpacked point, by the header.

    Raises:
        ScanError: one line.
    """
    if record is None or len(record) < _ITEMS:
        raise ScanError(f"{path}: packed points need a record of LASzip, got none; it is damaged")
    (count,) = struct.unpack_from("<H", record, _ITEMS - 2)
    if len(record) < _ITEMS + 6 * count:
        raise ScanError(f"{path}: LASzip's record must hold {count} items, got {len(record)} bytes")
    sizes = [struct.unpack_from("<H", record, _ITEMS + 6 * n + 2)[0] for n in range(count)]
    if sum(sizes) != row:
        raise ScanError(
            f"{path}: items of a packed point must add up to its {row} bytes, got {sizes}; "
            "LASzip's record is damaged"
        )
    (points,) = struct.unpack_from("<I", record, _ITEMS - 22)
    if points != _VARIABLE:
        check_expansion(path, points * row, len(raw))
    _check_chunks(path, raw, record, start, row)


def _check_chunks(path: Path, raw: bytes, record: bytes, start: int, row: int) -> None:
    size = len(raw)
    table = struct.unpack_from("<q", raw, start)[0] if start + 8 <= size else -2
    if table == -1:  # written as a stream: the place is at the end
        (table,) = struct.unpack_from("<q", raw, size - 8)
    if not start + 8 <= table <= size - 8:
        raise ScanError(
            f"{path}: the table of chunks (named at byte {start}) must lie between the points and "
            f"the end at {size}, got {table}; the file is cut off or damaged"
        )
    room = table - start - 8
    (chunks,) = struct.unpack_from("<I", raw, table + 4)
    if chunks > room:
        raise ScanError(f"{path}: {chunks} chunks must fit {room} bytes of packed points")
    lazrs = library(path, "lazrs")
    stream = io.BytesIO(raw)
    stream.seek(start)
    with refusing(path, "table of chunks"):
        listed = lazrs.read_chunk_table(stream, lazrs.LazVlr(record))
    packed = sum(length for _, length in listed)
    if packed > room:
        raise ScanError(
            f"{path}: chunks must fit {room} bytes of packed points, got {packed} by the table"
        )
    check_expansion(path, max((points for points, _ in listed), default=0) * row, size)
