"""SemanticKITTI classes: raw ids, training ids, names and colours, as the official API has them.

Raw ids live in ``.label`` files (low 16 bits). A `LabelMap` turns them into training ids 0..19,
where 0 is ignored. Repositories disagree about some raw ids, so a map is always named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "CLASS_NAMES",
    "COLORS",
    "LABEL_MAPS",
    "RAW_NAMES",
    "LabelMap",
    "colors_of",
    "conflicts",
]

CLASS_NAMES = (
    "ignored",
    "car",
    "bicycle",
    "motorcycle",
    "truck",
    "other-vehicle",
    "person",
    "bicyclist",
    "motorcyclist",
    "road",
    "parking",
    "sidewalk",
    "other-ground",
    "building",
    "fence",
    "vegetation",
    "trunk",
    "terrain",
    "pole",
    "traffic-sign",
)
"""Names of the training ids 0..19."""

RAW_NAMES: Mapping[int, str] = {
    0: "unlabeled",
    1: "outlier",
    10: "car",
    11: "bicycle",
    13: "bus",
    15: "motorcycle",
    16: "on-rails",
    18: "truck",
    20: "other-vehicle",
    30: "person",
    31: "bicyclist",
    32: "motorcyclist",
    40: "road",
    44: "parking",
    48: "sidewalk",
    49: "other-ground",
    50: "building",
    51: "fence",
    52: "other-structure",
    60: "lane-marking",
    70: "vegetation",
    71: "trunk",
    72: "terrain",
    80: "pole",
    81: "traffic-sign",
    99: "other-object",
    252: "moving-car",
    253: "moving-bicyclist",
    254: "moving-person",
    255: "moving-motorcyclist",
    256: "moving-on-rails",
    257: "moving-bus",
    258: "moving-truck",
    259: "moving-other-vehicle",
}

_STILL = {252: 10, 253: 31, 254: 30, 255: 32, 256: 16, 257: 13, 258: 18, 259: 20}

# Red, green, blue; the official YAML stores blue, green, red.
_STILL_COLORS: Mapping[int, tuple[int, int, int]] = {
    0: (0, 0, 0),
    1: (255, 0, 0),
    10: (100, 150, 245),
    11: (100, 230, 245),
    13: (100, 80, 250),
    15: (30, 60, 150),
    16: (0, 0, 255),
    18: (80, 30, 180),
    20: (0, 0, 255),
    30: (255, 30, 30),
    31: (255, 40, 200),
    32: (150, 30, 90),
    40: (255, 0, 255),
    44: (255, 150, 255),
    48: (75, 0, 75),
    49: (175, 0, 75),
    50: (255, 200, 0),
    51: (255, 120, 50),
    52: (255, 150, 0),
    60: (150, 255, 170),
    70: (0, 175, 0),
    71: (135, 60, 0),
    72: (150, 240, 80),
    80: (255, 240, 150),
    81: (255, 0, 0),
    99: (50, 255, 255),
}
COLORS: Mapping[int, tuple[int, int, int]] = {
    **_STILL_COLORS,
    **{moving: _STILL_COLORS[still] for moving, still in _STILL.items()},
}
"""Official colours by raw id, as red, green, blue."""

_OFFICIAL = {
    0: (0, 1, 52, 99),
    1: (10, 252),
    2: (11,),
    3: (15,),
    4: (18, 258),
    5: (13, 16, 20, 256, 257, 259),
    6: (30, 254),
    7: (31, 253),
    8: (32, 255),
    9: (40, 60),
    10: (44,),
    11: (48,),
    12: (49,),
    13: (50,),
    14: (51,),
    15: (70,),
    16: (71,),
    17: (72,),
    18: (80,),
    19: (81,),
}
_RAW_OF_TRAIN = (0, 10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81)
_SPVNAS_IGNORED = (13, 16, 60, 256, 257)


@dataclass(frozen=True)
class LabelMap:
    """A named raw-to-training map and its inverse.

    Attributes:
        name: Which repository's map it is.
        forward: Training id of each known raw id.
        inverse: Raw id written back for each training id.
    """

    name: str
    forward: Mapping[int, int]
    inverse: tuple[int, ...]

    def to_train(
        self, labels: npt.NDArray[np.generic], unknown: str = "error"
    ) -> npt.NDArray[np.uint8]:
        """Training ids of raw labels; the instance (high 16 bits) is masked off first.

        Args:
            labels: Raw labels, any integer dtype.
            unknown: What a raw id outside the map means: ``"error"`` raises and names the first,
                ``"ignore"`` makes it training id 0.
        """
        if unknown not in ("error", "ignore"):
            raise ValueError(f"unknown must be 'error' or 'ignore', got {unknown!r}")
        if not np.issubdtype(labels.dtype, np.integer):
            raise TypeError(f"labels must have an integer dtype, got {labels.dtype}")
        raw = (labels.astype(np.int64) & 0xFFFF).astype(np.uint16)
        table = np.full(2**16, -1, np.int16)
        table[list(self.forward)] = list(self.forward.values())
        train = table[raw]
        if unknown == "error" and (train < 0).any():
            row = int(np.argmax(train.reshape(-1) < 0))
            raise ValueError(
                f"labels must hold raw ids of the {self.name} map, got {raw.reshape(-1)[row]} "
                f"at point {row}; pass unknown='ignore' to leave such points out"
            )
        return np.maximum(train, 0).astype(np.uint8)

    def to_raw(self, train: npt.NDArray[np.generic]) -> npt.NDArray[np.uint32]:
        """Raw ids (uint32, instance 0) to write for training ids."""
        values = train.astype(np.int64)
        if values.size and (values.min() < 0 or values.max() >= len(self.inverse)):
            raise ValueError(
                f"train must lie in [0, {len(self.inverse) - 1}], "
                f"got [{values.min()}, {values.max()}]"
            )
        return np.array(self.inverse, np.uint32)[values]


def _forward(ignored: tuple[int, ...] = ()) -> dict[int, int]:
    table = {raw: train for train, raws in _OFFICIAL.items() for raw in raws}
    return {raw: 0 if raw in ignored else train for raw, train in sorted(table.items())}


LABEL_MAPS: Mapping[str, LabelMap] = {
    "official": LabelMap("official", _forward(), _RAW_OF_TRAIN),
    "spvnas": LabelMap("spvnas", _forward(_SPVNAS_IGNORED), _RAW_OF_TRAIN),
}
"""``official`` is the benchmark's; ``spvnas`` ignores bus, on-rails, lane-marking and their moving
twins, so numbers under it are not the official ones."""


def colors_of(labels: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Official colour ``[N, 3]`` (red, green, blue) of each raw label; unknown ids are grey."""
    table = np.full((2**16, 3), 128, np.uint8)
    table[list(COLORS)] = list(COLORS.values())
    return np.asarray(table[labels.astype(np.int64) & 0xFFFF], np.uint8)


def conflicts(first: str, second: str) -> dict[int, tuple[str, str]]:
    """Raw ids to which two named maps give different classes, with the names of those."""
    for name, value in (("first", first), ("second", second)):
        if value not in LABEL_MAPS:
            raise ValueError(f"{name} must be one of {list(LABEL_MAPS)}, got {value!r}")
    one, two = LABEL_MAPS[first].forward, LABEL_MAPS[second].forward
    return {
        raw: (CLASS_NAMES[one[raw]], CLASS_NAMES[two[raw]]) for raw in one if one[raw] != two[raw]
    }
