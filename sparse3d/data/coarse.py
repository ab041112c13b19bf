"""Five coarse classes on which weights trained on other label sets can be compared."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sparse3d.data.metrics import Confusion

__all__ = ["COARSE_NAMES", "coarse_scores", "to_coarse"]

COARSE_NAMES = ("ignored", "ground", "vehicle", "structure", "vegetation", "pole", "other")

_COARSE: Mapping[int, tuple[int, ...]] = {
    1: (40, 44, 48, 49, 60, 72),
    2: (10, 13, 16, 18, 20, 252, 256, 257, 258, 259),
    3: (50, 51),
    4: (70, 71),
    5: (80, 81),
    6: (11, 15, 30, 31, 32, 253, 254, 255),
}


def to_coarse(labels: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Coarse id of raw labels.

    Ground is road, parking, pavement, other ground, lane marking and terrain; vehicle has four
    wheels or more; structure is building and fence; vegetation includes trunks; pole includes
    signs. People and two-wheelers are ``other``: they count as misses and false alarms of the five
    but have no score of their own. Everything that SemanticKITTI does not score is ignored.
    """
    table = np.zeros(2**16, np.uint8)
    for coarse, raws in _COARSE.items():
        table[list(raws)] = coarse
    return np.asarray(table[labels.astype(np.int64) & 0xFFFF])


def coarse_scores(confusion: Confusion) -> dict[str, float]:
    """IoU of each of the five classes, and their mean under ``"mean"``."""
    iou = confusion.iou()[1:6]
    scores = {name: float(value) for name, value in zip(COARSE_NAMES[1:6], iou, strict=True)}
    return {**scores, "mean": float(iou.mean())}
