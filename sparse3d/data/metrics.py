"""Intersection over union as the official SemanticKITTI script computes it.

One table over the whole split (rows predicted, columns true, 64-bit counts). Points whose truth is
ignored do not count; a prediction of an ignored class on a counted point is a miss for the truth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Confusion"]

_TINY = 1e-15


class Confusion:
    """A confusion table that scans are added to.

    Args:
        names: Class names by id.
        ignore: Ids that are not scored.
    """

    def __init__(self, names: Sequence[str], ignore: Sequence[int] = (0,)) -> None:
        self.names = tuple(names)
        self.ignore = tuple(ignore)
        size = len(self.names)
        bad = [i for i in self.ignore if not 0 <= i < size]
        if bad:
            raise ValueError(f"ignore must hold ids in [0, {size - 1}], got {bad[0]}")
        self.counts: npt.NDArray[np.int64] = np.zeros((size, size), np.int64)

    @property
    def scored(self) -> tuple[int, ...]:
        """The ids that count, in order."""
        return tuple(i for i in range(len(self.names)) if i not in self.ignore)

    def add(self, predicted: npt.NDArray[np.generic], true: npt.NDArray[np.generic]) -> None:
        """Count one scan; both arrays hold class ids, one per point."""
        size = len(self.names)
        if predicted.shape != true.shape:
            raise ValueError(f"predicted must have shape {true.shape}, got {predicted.shape}")
        for name, values in (("predicted", predicted), ("true", true)):
            if values.size and (values.min() < 0 or values.max() >= size):
                raise ValueError(
                    f"{name} must hold ids in [0, {size - 1}], got [{values.min()}, {values.max()}]"
                )
        flat = predicted.astype(np.int64).reshape(-1) * size + true.astype(np.int64).reshape(-1)
        self.counts += np.bincount(flat, minlength=size * size).reshape(size, size)

    def merge(self, other: Confusion) -> None:
        """Add another table of the same classes, for instance another process's share."""
        if other.names != self.names or other.ignore != self.ignore:
            raise ValueError("other must have the same classes and ignored ids")
        self.counts += other.counts

    def _parts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """True positives, false positives, false negatives by id."""
        table = self.counts.copy()
        table[:, list(self.ignore)] = 0
        hits = table.diagonal().copy()
        return hits, table.sum(axis=1) - hits, table.sum(axis=0) - hits

    def iou(self) -> npt.NDArray[np.float64]:
        """IoU of every id; a class absent from truth and prediction has 0, as officially."""
        hits, extra, missed = self._parts()
        ratio: npt.NDArray[np.float64] = hits / (hits + extra + missed + _TINY)
        return ratio

    def present(self) -> tuple[int, ...]:
        """Scored ids that occur in the truth or, on counted points, in the prediction."""
        hits, extra, missed = self._parts()
        return tuple(i for i in self.scored if hits[i] + extra[i] + missed[i] > 0)

    def mean(self) -> float:
        """The official mIoU: plain mean over all scored classes, absent ones counting 0."""
        return float(self.iou()[list(self.scored)].mean())

    def mean_present(self) -> float:
        """Mean IoU over the classes that occur; NaN when nothing was counted."""
        present = list(self.present())
        return float(self.iou()[present].mean()) if present else float("nan")

    def accuracy(self) -> float:
        """Right points over counted points that were not predicted as an ignored class."""
        hits, extra, _ = self._parts()
        scored = list(self.scored)
        return float(hits[scored].sum() / (hits[scored].sum() + extra[scored].sum() + _TINY))
