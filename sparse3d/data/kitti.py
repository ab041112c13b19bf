"""KITTI ``.bin`` scans and SemanticKITTI ``.label`` files, read with every byte accounted for.

A ``.bin`` has no header, so nothing but its size and its values says what it is. Both are checked,
and each error is one line: the file, what is wrong, where (point and byte), and a way out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparse3d.data.columns import MAX_COORDINATE, advice, head_of

__all__ = ["Scan", "ScanError", "read_labels", "read_scan"]

POINT_BYTES = 16
LABEL_BYTES = 4
MAX_POINTS = 2**31 - 1
MOST_OUTLIERS = 0.1  # of the points; more mean another format
COLUMNS = ("x", "y", "z", "remission")
DROP = "drop such points with --drop-invalid (drop_invalid=True in Python)"
"""The way out of points that are damaged one by one."""

PathLike = str | os.PathLike[str]


class ScanError(ValueError):
    """A scan or label file that is not what it should be; the message is one line."""


@dataclass(frozen=True)
class Scan:
    """One lidar scan.

    Attributes:
        path: Where it came from.
        points: float32 ``[N, 4]``: x, y, z in metres and remission in [0, 1].
        rows: int64 ``[N]``, the row of each point in the file.
        total: Number of points in the file; ``total - N`` were dropped on request.
        notes: One-line remarks that are no errors.
    """

    path: Path
    points: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    total: int
    notes: tuple[str, ...] = field(default=())

    @property
    def dropped(self) -> int:
        """How many points of the file are left out of ``points``."""
        return self.total - len(self.points)


def read_scan(
    path: PathLike,
    *,
    drop_invalid: bool = False,
    max_coordinate: float = MAX_COORDINATE,
    max_remission: float = 1.0,
) -> Scan:
    """Read a KITTI ``.bin`` (float32 x, y, z, remission) and check every value.

    Args:
        path: The file.
        drop_invalid: Leave out points with a NaN or infinite value, or with a coordinate beyond
            the limit, instead of raising. Where more than a tenth of the points lie beyond it, or
            another layout explains them, they still raise: that is no bad return.
        max_coordinate: Largest believable ``|x|``, ``|y|``, ``|z|`` in metres.
        max_remission: Largest legal remission; KITTI stores [0, 1], some converters 0 to 255.

    Raises:
        ScanError: The file cannot be such a scan.
    """
    path = Path(path)
    size = file_size(path)
    if size % POINT_BYTES:
        whole = size // POINT_BYTES
        raise ScanError(
            f"{path}: size must be a multiple of {POINT_BYTES} bytes (float32 x, y, z, remission), "
            f"got {size} bytes: {size % POINT_BYTES} bytes left after {whole} points "
            f"(byte {whole * POINT_BYTES}); "
            + (advice(head_of(path), size, "kitti") or "the file is cut off or is no KITTI scan")
        )
    if size // POINT_BYTES > MAX_POINTS:
        raise ScanError(f"{path}: must hold at most {MAX_POINTS} points, got {size // POINT_BYTES}")
    raw = file_bytes(path, size)
    points = np.frombuffer(raw, "<f4").astype(np.float32).reshape(-1, 4)
    finite = np.isfinite(points)
    good = np.asarray(finite.all(axis=1))
    with np.errstate(invalid="ignore"):
        far_out = np.asarray(finite & (np.abs(points) > max_coordinate))
    far = np.asarray(far_out[:, :3].any(axis=1))
    dropped = drop_invalid and far.any() and are_outliers(far) and not advice(raw, size, "kitti")
    seen = finite & ~far[:, None] if dropped else finite
    _check_ranges(path, raw, points, seen, max_coordinate, max_remission)
    _check_magnitudes(path, points)
    if not good.all() and not drop_invalid:
        where = _first(~finite)
        raise ScanError(
            f"{path}: {_place(where)} must be finite, got {points[where]} "
            f"({int((~good).sum())} of {len(good)} points affected); {DROP}"
        )
    rows = np.flatnonzero(good & ~far)
    kept = points[rows]
    left = _left_out(int((~good).sum()), int((good & far).sum()), max_coordinate)
    return Scan(path, kept, rows, len(points), _notes(path, kept, len(points), left))


def are_outliers(far: npt.NDArray[np.bool_]) -> bool:
    """Whether so few points lie beyond the limit that they are bad returns."""
    return int(far.sum()) <= MOST_OUTLIERS * len(far)


def _left_out(invalid: int, far: int, limit: float) -> str:
    """In words, why points are left out; "" for none."""
    parts = [f"{invalid} with NaN or infinite values"] if invalid else []
    parts += [f"{far} with a coordinate beyond {limit:g}"] if far else []
    return ", ".join(parts)


def read_labels(path: PathLike, count: int | None = None) -> npt.NDArray[np.uint32]:
    """Read a ``.label`` file: uint32 per point, class in the low 16 bits, instance in the high.

    Args:
        path: The file.
        count: Number of points of the scan it belongs to; a different number of labels raises.
    """
    path = Path(path)
    size = file_size(path)
    if size % LABEL_BYTES:
        raise ScanError(
            f"{path}: size must be a multiple of {LABEL_BYTES} bytes (uint32 per point), "
            f"got {size} bytes: {size % LABEL_BYTES} bytes left after label "
            f"{size // LABEL_BYTES - 1} (byte {size - size % LABEL_BYTES}); the file is cut off"
        )
    labels = np.frombuffer(file_bytes(path, size), "<u4").astype(np.uint32)
    if count is not None and len(labels) != count:
        difference = len(labels) - count
        word = "too many" if difference > 0 else "missing"
        raise ScanError(
            f"{path}: must hold one label for each of the scan's {count} points, "
            f"got {len(labels)}: {abs(difference)} {word} from label {min(count, len(labels))} "
            f"(byte {min(count, len(labels)) * LABEL_BYTES}); take the file of the same scan"
        )
    return labels


def file_size(path: Path) -> int:
    """Bytes in a regular file, or a one-line error."""
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "a device or pipe"
            raise ScanError(f"{path}: must be a file, got {kind}; name the scans in it")
        return path.stat().st_size
    except OSError as error:
        raise ScanError(f"{path}: cannot be read: {error.strerror}") from None


def file_bytes(path: Path, size: int) -> bytes:
    """Exactly the bytes whose number was checked."""
    try:
        with path.open("rb") as file:
            raw = file.read(size + 1)
    except OSError as error:
        raise ScanError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) != size:
        raise ScanError(f"{path}: size must stay {size} bytes while reading, got {len(raw)}")
    return raw


def _check_magnitudes(path: Path, points: npt.NDArray[np.float32]) -> None:
    """Refuse integers read as floats: small ones become numbers below the normal range."""
    tiny = (points != 0) & (np.abs(points) < np.finfo(np.float32).tiny)
    if tiny.any():
        where = _first(tiny)
        raise ScanError(
            f"{path}: {_place(where)} must be 0 or a normal float32, got {points[where]:.3g} "
            f"({int(tiny.any(axis=1).sum())} of {len(points)} points affected); the file holds "
            "integers (labels?) or has another layout; convert it to float32 x, y, z, remission"
        )


def _check_ranges(
    path: Path,
    raw: bytes,
    points: npt.NDArray[np.float32],
    finite: npt.NDArray[np.bool_],
    max_coordinate: float,
    max_remission: float,
) -> None:
    """Refuse values that no lidar returns; say which other layout would explain them."""
    limits = np.array([max_coordinate] * 3 + [max_remission], np.float32)
    low = np.array([-max_coordinate] * 3 + [0.0], np.float32)
    with np.errstate(invalid="ignore"):
        wrong = finite & ((points > limits) | (points < low))
    if not wrong.any():
        return
    where = _first(wrong)
    column = where[1]
    bounds = f"[{low[column]:g}, {limits[column]:g}]" + (" m" if column < 3 else "")
    rows = int(wrong.any(axis=1).sum())
    way_out = advice(raw, len(raw), "kitti")
    if way_out:
        way_out = way_out.replace("; ", ", which is not a KITTI scan; ", 1)
    elif column == 3:
        way_out = (
            "KITTI stores remission in [0, 1]; name the scale with --max-remission "
            "(max_remission in Python) or convert it"
        )
    elif are_outliers(np.asarray(wrong[:, :3].any(axis=1))):
        way_out = DROP
    else:
        way_out = (
            "the file is damaged or has another layout; convert it to float32 x, y, z, remission"
        )
    raise ScanError(
        f"{path}: {_place(where)} must lie in {bounds}, got {points[where]:g} "
        f"({rows} of {len(points)} points affected); {way_out}"
    )


def _notes(path: Path, points: npt.NDArray[np.float32], total: int, left: str) -> tuple[str, ...]:
    notes = []
    if total == 0:
        notes.append(f"{path}: the scan is empty (0 points)")
    elif len(points) < total:
        notes.append(
            f"{path}: dropped {total - len(points)} of {total} points ({left}); they get label 0 "
            "(unlabeled)"
        )
    origin = int((points[:, :3] == 0).all(axis=1).sum())
    if origin:
        notes.append(f"{path}: {origin} points lie exactly at (0, 0, 0): no-return markers?")
    return tuple(notes)


def _first(mask: npt.NDArray[np.bool_]) -> tuple[int, int]:
    row = int(np.argmax(mask.any(axis=1)))
    return row, int(np.argmax(mask[row]))


def _place(where: tuple[int, int]) -> str:
    row, column = where
    return f"{COLUMNS[column]} of point {row} (byte {row * POINT_BYTES + column * 4})"
