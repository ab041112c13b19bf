"""The part of a scan that a network sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["clipped"]

Real = TypeVar("Real", bound=np.floating)


def clipped(
    points: npt.NDArray[Real], box: Sequence[float] | None, outside: str
) -> tuple[npt.NDArray[Real], npt.NDArray[np.bool_]]:
    """Points within a box.

    Args:
        points: ``[N, >=3]``, x, y, z in metres first; the box is rounded to their type.
        box: Smallest x, y, z, then largest; None takes all points.
        outside: ``"drop"`` leaves points beyond it out, ``"clamp"`` moves them to its border (the
            `PointClip` of Pointcept's recipes).

    Returns:
        The points that are seen ``[M, >=3]``, and which those are, bool ``[N]``.
    """
    if outside not in ("drop", "clamp"):
        raise ValueError(f"outside must be 'drop' or 'clamp', got {outside!r}")
    if box is None:
        return points, np.ones(len(points), np.bool_)
    low, high = np.array(box[:3], points.dtype), np.array(box[3:], points.dtype)
    if outside == "clamp":
        moved = points.copy()
        moved[:, :3] = np.clip(points[:, :3], low, high)
        return moved, np.ones(len(points), np.bool_)
    kept = np.asarray(((points[:, :3] >= low) & (points[:, :3] <= high)).all(axis=1))
    return points[kept], kept
