"""How good are the weights: on streets they never saw, and against labels of a real scan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from sparse3d.data.metrics import Confusion
from sparse3d.data.segment import Segmenter
from sparse3d.data.semantic_kitti import RAW_NAMES
from sparse3d.data.simulate import random_sensor, simulate

__all__ = ["FIRST_TRAINING_SEED", "RawConfusion", "held_out"]

FIRST_TRAINING_SEED = 1_000_000
"""Streets with smaller seeds are never trained on."""


class RawConfusion:
    """Scores over a list of raw ids; points of any other true class are not counted."""

    def __init__(self, classes: Sequence[int]) -> None:
        ids = sorted(set(classes) - {0})
        self.confusion = Confusion(["ignored", *(RAW_NAMES[raw] for raw in ids)])
        self._table = np.zeros(2**16, np.int64)
        self._table[ids] = np.arange(1, len(ids) + 1)

    def add(self, predicted: npt.NDArray[np.uint32], true: npt.NDArray[np.uint32]) -> None:
        """Count one scan of raw labels."""
        self.confusion.add(self._table[predicted & 0xFFFF], self._table[true & 0xFFFF])

    def scores(self) -> dict[str, float]:
        """IoU by class name, in the order of ids."""
        names, iou = self.confusion.names, self.confusion.iou()
        return {names[i]: float(iou[i]) for i in self.confusion.scored}


def held_out(segmenter: Segmenter, seeds: Iterable[int]) -> RawConfusion:
    """Score a network on simulated streets under random sensors.

    Args:
        segmenter: The network.
        seeds: Seeds below `FIRST_TRAINING_SEED`.
    """
    table = RawConfusion(segmenter.config.classes)
    for seed in seeds:
        if not 0 <= seed < FIRST_TRAINING_SEED:
            raise ValueError(f"seeds must lie in [0, {FIRST_TRAINING_SEED - 1}], got {seed}")
        street = simulate(seed, random_sensor(np.random.default_rng(seed)))
        table.add(segmenter.predict(street.points), street.labels)
    return table
