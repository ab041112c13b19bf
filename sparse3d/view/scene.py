"""What a page shows of a cloud: arrays for the graphics card, legends, a place to stand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sparse3d.data.cloud import PointCloud
from sparse3d.data.semantic_kitti import LABEL_MAPS
from sparse3d.view.classes import Classes, own_classes, semantic_kitti

__all__ = ["Scene"]

_RIGHT, _WRONG, _IGNORED = 0, 1, 2
_ERROR = (
    ("right", (104, 132, 168)),
    ("wrong", (255, 66, 50)),
    ("not scored", (92, 96, 106)),
)
_LIDAR = ("kitti", "nuscenes")


@dataclass
class Scene:
    """A cloud with up to two labels for each point.

    Args:
        cloud: The points.
        labels: Raw SemanticKITTI labels, uint32, one for each point of the file; if not given, the
            file's own classes, where it has some.
        truth: Labels to compare with, likewise.
        most: Points beyond that many are thinned out evenly.

    Attributes:
        notes: One-line remarks that are no errors.
    """

    cloud: PointCloud
    labels: npt.NDArray[np.uint32] | None = None
    truth: npt.NDArray[np.uint32] | None = None
    most: int = 3_000_000
    notes: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        for name, values in (("labels", self.labels), ("truth", self.truth)):
            if values is not None and len(values) != self.cloud.total:
                raise ValueError(
                    f"{name} must have one entry for each of the {self.cloud.total} points of the "
                    f"file, got {len(values)}"
                )
        if self.most < 1:
            raise ValueError(f"most must be at least 1, got {self.most}")
        count = len(self.cloud)
        step = -(-count // self.most)
        self.rows = np.arange(0, count, step)
        if step > 1:
            self.notes.append(
                f"{self.cloud.path}: shows every {step}th point, {len(self.rows)} of {count}"
            )
        points, self.offset = self.cloud.local()
        self.points = np.ascontiguousarray(points[self.rows])
        self.classes = self._classes(self.labels, own=True)
        self.true_classes = self._classes(self.truth, own=False)
        self.errors = self._errors()

    def _classes(self, labels: npt.NDArray[np.uint32] | None, own: bool) -> Classes | None:
        if labels is not None:
            return semantic_kitti(labels[self.cloud.rows][self.rows])
        found = own_classes(self.cloud) if own else None
        if found is None:
            return None
        return Classes(found.codes[self.rows], found.ids, found.names, found.colors)

    def _errors(self) -> npt.NDArray[np.uint8] | None:
        """Right, wrong or not scored, by the official classes, where moving cars are cars."""
        if self.labels is None or self.truth is None:
            return None
        known = LABEL_MAPS["official"]
        pair = [values[self.cloud.rows][self.rows] for values in (self.labels, self.truth)]
        own, true = (known.to_train(values, unknown="ignore") for values in pair)
        return np.where(true == 0, _IGNORED, np.where(own == true, _RIGHT, _WRONG)).astype(np.uint8)

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """What the page uploads: position, code (class, truth, error, intensity), paint, row."""
        code = np.zeros((len(self.points), 4), np.uint8)
        for i, classes in enumerate((self.classes, self.true_classes)):
            if classes is not None:
                code[:, i] = classes.codes
        if self.errors is not None:
            code[:, 2] = self.errors
        intensity = self._intensity()
        if intensity is not None:
            low, high, grey = intensity
            code[:, 3] = np.rint(255 * np.clip((grey - low) / max(high - low, 1e-9), 0, 1))
        arrays: dict[str, npt.NDArray[np.generic]] = {"position": self.points, "code": code}
        colors = self.cloud.colors()
        if colors is not None:
            arrays["paint"] = colors[self.rows]
        if len(self.points) != self.cloud.total:
            arrays["row"] = self.cloud.rows[self.rows].astype(np.uint32)
        return arrays

    def _intensity(self) -> tuple[float, float, npt.NDArray[np.float32]] | None:
        values = self.cloud.intensity()
        if values is None:
            return None
        low, high = np.percentile(values, [1, 99])
        if high <= low:
            low, high = float(values.min()), float(values.max())
        return float(low), float(high), values[self.rows]

    def describe(self) -> dict[str, Any]:
        """The page's description of the scene, ready for JSON."""
        middle, radius = self._extent()
        low, high = (float(v) for v in np.percentile(self.points[:, 2], [2, 98]))
        intensity = self._intensity()
        flat = self.cloud.format in _LIDAR
        distance = radius * (1.5 if flat else 2.2)
        digits = max(0, min(6, 3 - math.floor(math.log10(max(radius, 1e-3) / 10))))
        return {
            "title": self.cloud.path.name,
            "about": self._about(),
            "offset": self.offset.tolist(),
            "digits": digits,
            "ranges": flat,
            "radius": radius,
            "spacing": self._spacing(radius, flat),
            "heights": [low, high],
            "intensity": None if intensity is None else intensity[:2],
            "home": {
                "target": middle,
                "distance": distance,
                "yaw": math.radians(-125 if flat else -60),
                "pitch": math.radians(38 if flat else 28),
            },
            "grid": self._grid(middle, radius, low),
            "legends": self._legends(),
            "modes": self._modes(low, high, intensity),
        }

    def _extent(self) -> tuple[list[float], float]:
        """A middle and a radius that far outliers do not move."""
        low, high = np.percentile(self.points, [2, 98], axis=0).astype(np.float64)
        middle = (low + high) / 2
        if self.cloud.format in _LIDAR:  # around the sensor
            middle = np.array([0.0, 0.0, low[2]])
            radius = np.percentile(np.hypot(self.points[:, 0], self.points[:, 1]), 90)
        else:
            radius = np.linalg.norm(high - low) / 2
        return middle.tolist(), max(float(radius), 1e-3)

    def _spacing(self, radius: float, flat: bool) -> float:
        """How large a point is drawn: about the distance to its neighbours."""
        near = math.sqrt(len(self.points)) if flat else math.sqrt(len(self.points) / 2)
        return (0.6 if flat else 1.0) * radius / max(near, 8.0)

    def _grid(self, middle: list[float], radius: float, low: float) -> dict[str, Any]:
        rough = radius / 6
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(k * power for k in (1, 2, 5, 10) if k * power >= rough)
        return {
            "step": float(f"{step:g}"), "z": low, "middle": middle[:2], "radius": 2.5 * radius,
        }  # fmt: skip

    def _about(self) -> list[str]:
        lines = [f"{len(self.points):,} points"]
        if len(self.points) != self.cloud.total:
            lines[0] += f" of {self.cloud.total:,}"
        if self.errors is not None:
            scored = int((self.errors != _IGNORED).sum())
            right = int((self.errors == _RIGHT).sum())
            if scored:
                lines.append(f"{100 * right / scored:.1f} % of {scored:,} scored are right")
        return lines

    def _legends(self) -> list[dict[str, Any]]:
        legends = []
        for row, name, classes in ((0, "class", self.classes), (1, "truth", self.true_classes)):
            if classes is not None:
                table = zip(classes.names, classes.colors, classes.counts().tolist(), strict=True)
                entries = [_entry(code, *entry) for code, entry in enumerate(table)]
                entries.sort(key=lambda entry: -int(entry["count"]))
                legends.append({"row": row, "name": name, "entries": entries})
        if self.errors is not None:
            counts = np.bincount(self.errors, minlength=3).tolist()
            entries = [_entry(i, *_ERROR[i], counts[i]) for i in range(3) if counts[i]]
            legends.append({"row": 2, "name": "error", "entries": entries})
        return legends

    def _modes(
        self, low: float, high: float, intensity: tuple[float, float, Any] | None
    ) -> list[dict[str, Any]]:
        rows = [legend["row"] for legend in self._legends()]
        first = [0] if rows else []
        modes: list[dict[str, Any]] = []
        for number, name in ((0, "class"), (1, "truth"), (2, "error")):
            if number in rows:
                shown = [rows.index(number)]
                if number == 2:
                    shown.append(rows.index(1))
                modes.append({"number": number, "name": name, "legends": shown})
        if self.cloud.colors() is not None:
            modes.append({"number": 3, "name": "colour", "legends": first})
        unit = "z in m" if self.cloud.format in _LIDAR else "z"  # maps may be in feet
        height = {"number": 5, "name": "height", "unit": unit, "legends": first}
        height["range"] = _ends(low + self.offset[2], high + self.offset[2])
        if intensity is not None:
            ends = [f"{value:.2f}" for value in intensity[:2]]
            modes.append(
                {"number": 4, "name": "intensity", "unit": "intensity", "range": ends,
                 "legends": first}
            )  # fmt: skip
        return [*modes, height]


def _ends(low: float, high: float) -> list[str]:
    """Both with as many places as tell a hundredth of what lies between them apart."""
    span = max(high - low, 1e-3)
    places = max(0, 2 - math.floor(math.log10(span)))
    return [f"{value:.{places}f}" for value in (low, high)]


def _entry(code: int, name: str, color: tuple[int, int, int], count: int) -> dict[str, Any]:
    return {"code": code, "name": name, "color": list(color), "count": count}
