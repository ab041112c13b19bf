"""What the classes of a cloud are called and how they are coloured."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparse3d.data.cloud import PointCloud
from sparse3d.data.semantic_kitti import COLORS, RAW_NAMES, colors_of

__all__ = ["Classes", "own_classes", "semantic_kitti"]

_MOST = 255
_GREY = (150, 150, 150)
# American Society for Photogrammetry and Remote Sensing: standard classes of LAS files.
_LAS: Mapping[int, tuple[str, tuple[int, int, int]]] = {
    0: ("never classified", (120, 120, 120)),
    1: ("unclassified", (170, 170, 170)),
    2: ("ground", (166, 118, 70)),
    3: ("low vegetation", (186, 228, 128)),
    4: ("medium vegetation", (110, 190, 80)),
    5: ("high vegetation", (30, 130, 50)),
    6: ("building", (232, 90, 70)),
    7: ("low point (noise)", (255, 0, 200)),
    8: ("model key point", (250, 250, 120)),
    9: ("water", (60, 130, 230)),
    10: ("rail", (140, 110, 190)),
    11: ("road surface", (90, 95, 110)),
    12: ("overlap", (250, 200, 90)),
    17: ("bridge deck", (200, 160, 210)),
    18: ("high noise", (255, 60, 220)),
}


@dataclass(frozen=True)
class Classes:
    """A class for each point, and what the classes are.

    Attributes:
        codes: uint8 ``[N]``, rows of the table.
        ids: The file's number of each row.
        names: Its name.
        colors: Its red, green, blue.
    """

    codes: npt.NDArray[np.uint8]
    ids: tuple[int, ...]
    names: tuple[str, ...]
    colors: tuple[tuple[int, int, int], ...]

    def counts(self) -> npt.NDArray[np.int64]:
        """Points of each row."""
        return np.bincount(self.codes, minlength=len(self.ids))


def semantic_kitti(labels: npt.NDArray[np.generic]) -> Classes:
    """SemanticKITTI's classes of raw labels ``[N]``; the instance (high 16 bits) is masked off."""
    raw = labels.astype(np.int64) & 0xFFFF
    return _table(raw, {n: (name, COLORS[n]) for n, name in RAW_NAMES.items()}, grey=True)


def own_classes(cloud: PointCloud) -> Classes | None:
    """Classes that the file itself has: LAS classification, our own PLY, or plain numbers."""
    values = cloud.classes()
    if values is None:
        return None
    if cloud.format == "las":
        return _table(values, _LAS)
    colors = cloud.colors()
    if colors is not None and values.min() >= 0 and (colors == colors_of(values)).all():
        return semantic_kitti(values)  # as `write_ply` makes them
    return _table(values, {})


def _table(
    values: npt.NDArray[np.int64],
    known: Mapping[int, tuple[str, tuple[int, int, int]]],
    grey: bool = False,
) -> Classes:
    ids, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    names = [known[n][0] if n in known else f"class {n}" for n in ids.tolist()]
    colors = [
        known[n][1] if n in known else _GREY if grey else _color(i)
        for i, n in enumerate(ids.tolist())
    ]
    numbers = ids.tolist()
    if len(ids) > _MOST:  # more than a legend, or a byte, can hold
        keep = np.sort(np.argsort(-counts, kind="stable")[: _MOST - 1])
        place = np.full(len(ids), _MOST - 1)
        place[keep] = np.arange(_MOST - 1)
        codes = place[codes]
        names = [*(names[i] for i in keep), f"{len(ids) - _MOST + 1} rare classes"]
        colors = [*(colors[i] for i in keep), _GREY]
        numbers = [*(numbers[i] for i in keep), -1]
    return Classes(codes.astype(np.uint8).reshape(-1), tuple(numbers), tuple(names), tuple(colors))


def _color(number: int) -> tuple[int, int, int]:
    """Hues that lie far apart for neighbouring numbers."""
    hue = (0.58 + number * 0.61803398875) % 1
    red, green, blue = colorsys.hsv_to_rgb(hue, (0.65, 0.45, 0.8)[number % 3], 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)
