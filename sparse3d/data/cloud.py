"""A point cloud of any format: where the points lie, and what else the file says of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparse3d.data.kitti import DROP, Scan, ScanError, are_outliers

__all__ = ["PointCloud"]

_INTENSITY = ("remission", "intensity", "scalar_intensity", "reflectance", "reflectivity")
_CLASSES = ("label", "labels", "classification", "class", "classes", "semantic", "scalar_label")
_CHANNELS = (("red", "green", "blue"), ("r", "g", "b"))
_LOCAL = 1000.0  # metres from the origin where float32 steps reach 0.06 mm
_FARTHEST = 1e12  # no map has such coordinates, in whatever unit
_COARSE = 1e5  # metres from the origin where float32 steps reach 8 mm


@dataclass(frozen=True)
class PointCloud:
    """One point cloud, as its file has it.

    Attributes:
        path: Where it came from.
        format: ``kitti``, ``nuscenes``, ``xyzrgb``, ``xyz``, ``ply``, ``pcd``, ``las``, ``npy`` or
            ``npz``.
        points: ``[N, 3]``, x, y, z in the file's unit; float32 where the file stores at most that,
            else float64. All are finite.
        attributes: What the file says of each point, by the file's own names: ``[N]`` or ``[N, k]``
            with the file's dtype. Packed PCD colours are unpacked into ``rgb``, uint8 ``[N, 3]``.
        rows: int64 ``[N]``, the row of each point in the file.
        total: Number of points in the file; ``total - N`` were left out.
        notes: One-line remarks that are no errors.
    """

    path: Path
    format: str
    points: npt.NDArray[np.floating]
    attributes: Mapping[str, npt.NDArray[np.generic]]
    rows: npt.NDArray[np.int64]
    total: int
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.points)

    @property
    def dropped(self) -> int:
        """How many points of the file are left out of ``points``."""
        return self.total - len(self.points)

    def local(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
        """Float32 points, and the float64 ``[3]`` offset that leads back to the file's.

        The offset is zero unless a coordinate passes 1000 m: map coordinates keep their precision
        when the subtraction comes first.
        """
        offset = np.zeros(3)
        if len(self.points) and np.abs(self.points).max() > _LOCAL:
            offset = np.floor(self.points.astype(np.float64).mean(axis=0))
        return (self.points - offset).astype(np.float32), offset

    def find(self, *names: str) -> npt.NDArray[np.generic] | None:
        """The first one-dimensional attribute of one of these names, whatever the case, that holds
        real numbers."""
        lowered = {name.lower(): value for name, value in self.attributes.items()}
        for name in names:
            if name in lowered and lowered[name].ndim == 1 and lowered[name].dtype.kind in "buif":
                return lowered[name]
        return None

    def intensity(self) -> npt.NDArray[np.float32] | None:
        """Float32 ``[N]`` in [0, 1], or None where the file has none.

        Values up to 1 stay; else they are divided by 255, or by 65535 where one is larger than 255.
        """
        values = self.find(*_INTENSITY)
        if values is None or not len(values):
            return None
        numbers = _finite(values)
        top = numbers.max()
        scale = next((limit for limit in (1.0, 255.0, 65535.0) if top <= limit), top)
        return np.clip(numbers / scale, 0, 1).astype(np.float32)

    def classes(self) -> npt.NDArray[np.int64] | None:
        """Int64 ``[N]`` class of each point, or None where the file has none."""
        values = self.find(*_CLASSES)
        if values is None:
            return None
        if values.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                if not (np.abs(values) < 2.0**53).all():  # nor what is no number
                    return None
        return values.astype(np.int64)

    def colors(self) -> npt.NDArray[np.uint8] | None:
        """Uint8 ``[N, 3]`` red, green, blue, or None where the file has none."""
        packed = self.attributes.get("rgb")
        if packed is not None and packed.ndim == 2:
            return packed.astype(np.uint8)
        for names in _CHANNELS:
            found = [self.find(name) for name in names]
            columns = [column for column in found if column is not None]
            if len(columns) == 3:
                if any(column.dtype == np.int8 for column in columns):  # some writers say char
                    columns = [column.astype(np.uint8) for column in columns]
                table = np.stack([_finite(column) for column in columns], axis=1)
                scale = 255.0 if table.max() <= 1 else 1.0 if table.max() <= 255 else 1 / 257
                return np.clip(table * scale, 0, 255).astype(np.uint8)
        return None

    def scan(self) -> Scan:
        """As `sparse3d segment` wants it: float32 x, y, z and remission in [0, 1].

        What had to be changed for that is added to the notes.
        """
        points, offset = self.local()
        notes = list(self.notes)
        if offset.any():
            moved = ", ".join(f"{value:g}" for value in offset)
            notes.append(f"{self.path}: coordinates are taken from ({moved}) on")
        remission = self.intensity()
        if remission is None:
            notes.append(f"{self.path}: has no intensity: remission is 0")
            remission = np.zeros(len(points), np.float32)
        table = np.concatenate([points, remission[:, None]], axis=1)
        return Scan(self.path, table, self.rows, self.total, tuple(notes))


def _finite(values: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """As float64, 0 for what is not finite; NaNs that signal make numpy warn, here without need."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def build(
    path: Path,
    kind: str,
    points: npt.NDArray[np.generic],
    attributes: Mapping[str, npt.NDArray[np.generic]],
    *,
    drop_invalid: bool,
    gaps: bool = False,
    limit: float = _FARTHEST,
    notes: tuple[str, ...] = (),
) -> PointCloud:
    """Check what a reader found.

    Args:
        path: The file.
        kind: Its format.
        points: ``[N, 3]``.
        attributes: ``[N]`` or ``[N, k]`` each.
        drop_invalid: Leave out points that are not finite, or few that lie beyond the limit,
            instead of raising.
        gaps: The format marks missing points by NaN (organised PCD): they are left out and noted.
        limit: Largest believable coordinate.
        notes: Remarks so far.

    Raises:
        ScanError: There is no point, or one that is not finite.
    """
    total = len(points)
    if total == 0:
        raise ScanError(f"{path}: must hold at least one point, got none")
    finite = np.isfinite(points).all(axis=1)
    bad = total - int(finite.sum())
    if bad and not (drop_invalid or gaps):
        row = int(np.argmin(finite))
        column = int(np.argmin(np.isfinite(points[row])))
        raise ScanError(
            f"{path}: {'xyz'[column]} of point {row} must be finite, got {points[row, column]} "
            f"({bad} of {total} points affected); {DROP}"
        )
    if bad == total:
        raise ScanError(f"{path}: must hold at least one finite point, got {total} without")
    said = list(notes)
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is told of above
        narrow = points.dtype in (np.float16, np.float32)
        table = points.astype(np.float32 if narrow else np.float64)
    far_out = np.isfinite(table) & (np.abs(table) > limit)
    beyond = np.asarray(far_out.any(axis=1))
    few = are_outliers(beyond)
    if beyond.any() and not (drop_invalid and few):
        row, column = (int(index[0]) for index in np.nonzero(far_out))
        raise ScanError(
            f"{path}: {'xyz'[column]} of point {row} must lie in [-{limit:g}, {limit:g}], "
            f"got {table[row, column]:g} ({int(beyond.sum())} of {total} points affected); "
            + (DROP if few else "the file is damaged or has another layout")
        )
    rows = np.flatnonzero(finite & ~beyond)
    if len(rows) == 0:
        raise ScanError(f"{path}: must hold at least one usable point, got {total} without")
    if len(rows) < total:
        table = table[rows]
        attributes = {name: values[rows] for name, values in attributes.items()}
        parts = [f"{bad} of {total} points without finite coordinates"] if bad else []
        far = int((finite & beyond).sum())
        parts += [f"{far} of {total} points with a coordinate beyond {limit:g}"] if far else []
        said.append(f"{path}: left out {' and '.join(parts)}")
    origin = int((table == 0).all(axis=1).sum())
    if origin:
        said.append(f"{path}: {origin} points lie exactly at (0, 0, 0): no-return markers?")
    farthest = float(np.abs(table).max())
    if table.dtype == np.float32 and farthest > _COARSE:
        step = float(np.spacing(np.float32(farthest)))
        said.append(f"{path}: float32 coordinates up to {farthest:.4g} lie {step:g} apart")
    return PointCloud(path, kind, table, dict(attributes), rows, total, tuple(said))
