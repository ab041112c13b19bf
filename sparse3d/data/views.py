"""Looks at a scan, turned differently: their scores are averaged (test-time augmentation)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparse3d.data.tables import Table

__all__ = ["View", "parse_views"]

FLIPS = ("none", "x", "y", "xy")
MOST = 32


@dataclass(frozen=True)
class View:
    """How a scan is moved before the network sees it: turned, then mirrored, then scaled.

    Attributes:
        rotate: Degrees about the vertical.
        flip: Axes that change sign: ``none``, ``x``, ``y`` or ``xy``.
        scale: Factor of x, y and z.
    """

    rotate: float = 0.0
    flip: str = "none"
    scale: float = 1.0

    @classmethod
    def numbered(cls, number: int) -> View:
        """Turned by 45 degrees a number; from the second on, mirrored."""
        return cls(45.0 * number, "y" if number > 1 else "none")

    def apply(self, points: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The moved scan, float32 ``[N, C]``; the scan itself where nothing moves it."""
        if self == View():
            return points
        angle = np.deg2rad(self.rotate)
        c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
        moved = np.array(points, np.float32)
        moved[:, 0] = c * points[:, 0] - s * points[:, 1]
        moved[:, 1] = s * points[:, 0] + c * points[:, 1]
        for column, axis in enumerate("xy"):
            if axis in self.flip.replace("none", ""):
                moved[:, column] *= -1
        moved[:, :3] *= np.float32(self.scale)
        return moved


def parse_views(value: Any, place: object) -> tuple[View, ...]:
    """The looks of a recipe: their number, or a list of tables ``rotate, flip, scale``.

    Raises:
        ValueError: It is neither; one line that begins with ``place``.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 16:
        return tuple(View.numbered(number) for number in range(value))
    if not isinstance(value, list) or not 1 <= len(value) <= MOST:
        raise ValueError(
            f"{place}: views must be a whole number from 1 to 16, got {value!r}; "
            f"or list up to {MOST} tables of rotate, flip, scale"
        )
    return tuple(_parse_view(entry, place, number) for number, entry in enumerate(value))


def _parse_view(entry: Any, place: object, number: int) -> View:
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: views[{number}] must be a table, got {entry!r}")
    table = Table(entry, ("rotate", "flip", "scale"), place, f"views[{number}].")
    return View(
        table.number("rotate", 0.0, -360, 360),
        table.choice("flip", "none", FLIPS),
        table.number("scale", 1.0, 0.1, 10),
    )
