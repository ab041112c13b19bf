"""Looks at a scan, turned differently: their scores are averaged (test-time augmentation)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sparse3d.data.tables import Table

__all__ = ["View", "parse_views"]

FLIPS = ("none", "x", "y", "xy")
MOST = 64

Real = TypeVar("Real", bound=np.floating)


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

    def apply(self, points: npt.NDArray[Real]) -> npt.NDArray[Real]:
        """The moved scan ``[N, C]``, in its own type; the scan itself where nothing moves it."""
        if self == View():
            return points
        angle = np.deg2rad(self.rotate)
        c, s, scale = np.array([np.cos(angle), np.sin(angle), self.scale], points.dtype)
        moved: npt.NDArray[Real] = points.copy()
        moved[:, 0] = c * points[:, 0] - s * points[:, 1]
        moved[:, 1] = s * points[:, 0] + c * points[:, 1]
        for column, axis in enumerate("xy"):
            if axis in self.flip.replace("none", ""):
                moved[:, column] *= -1
        moved[:, :3] *= scale
        return moved


def parse_views(value: Any, place: object) -> tuple[View, ...]:
    """The looks of a recipe: their number, a list of tables ``rotate, flip, scale``, or one table
    of lists, every choice of one from each of which is a look.

    Raises:
        ValueError: It is none of these; one line that begins with ``place``.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 16:
        return tuple(View.numbered(number) for number in range(value))
    if isinstance(value, dict):
        value = _choices(value, place)
    if not isinstance(value, list) or not 1 <= len(value) <= MOST:
        raise ValueError(
            f"{place}: views must be a whole number from 1 to 16, got {value!r}; "
            f"or list up to {MOST} tables of rotate, flip, scale"
        )
    return tuple(_parse_view(entry, place, number) for number, entry in enumerate(value))


def _choices(table: dict[str, Any], place: object) -> list[dict[str, Any]]:
    """Every choice of one entry from each list of a table."""
    for key, listed in table.items():
        if not isinstance(listed, list):
            raise ValueError(f"{place}: views.{key} must be a list, got {listed!r}")
    count = prod(len(listed) for listed in table.values())
    if not table or not 1 <= count <= MOST:
        raise ValueError(f"{place}: views must be 1 to {MOST} choices, got {count if table else 0}")
    return [dict(zip(table, chosen, strict=True)) for chosen in product(*table.values())]


def _parse_view(entry: Any, place: object, number: int) -> View:
    if not isinstance(entry, dict):
        raise ValueError(f"{place}: views[{number}] must be a table, got {entry!r}")
    table = Table(entry, ("rotate", "flip", "scale"), place, f"views[{number}].")
    return View(
        table.number("rotate", 0.0, -360, 360),
        table.choice("flip", "none", FLIPS),
        table.number("scale", 1.0, 0.1, 10),
    )
