"""Ways to move or thin one cloud. None changes its argument."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Cloud", "drop", "flip", "hide_sector", "jitter", "rotate", "scale"]


class Cloud(NamedTuple):
    """Points float32 ``[N, 4]`` (x, y, z, remission) and raw labels uint32 ``[N]``."""

    points: npt.NDArray[np.float32]
    labels: npt.NDArray[np.uint32]

    def pick(self, rows: npt.NDArray[np.generic]) -> Cloud:
        """The points of a mask or of row numbers."""
        return Cloud(self.points[rows], self.labels[rows])

    def join(self, other: Cloud) -> Cloud:
        """Both clouds, this one first."""
        return Cloud(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.labels, other.labels]),
        )


def rotate(cloud: Cloud, angle: float) -> Cloud:
    """Turn about the vertical.

    Args:
        cloud: The points.
        angle: Radians, from x towards y.
    """
    c, s = np.cos(angle), np.sin(angle)
    points = cloud.points.copy()
    turn = np.array([[c, s], [-s, c]], np.float64)
    points[:, :2] = cloud.points[:, :2].astype(np.float64) @ turn
    return Cloud(points, cloud.labels)


def scale(cloud: Cloud, factor: float) -> Cloud:
    """Multiply x, y and z."""
    points = cloud.points.copy()
    points[:, :3] *= np.float32(factor)
    return Cloud(points, cloud.labels)


def flip(cloud: Cloud, axis: str) -> Cloud:
    """Mirror: the coordinate ``"x"`` or ``"y"`` changes its sign."""
    if axis not in ("x", "y"):
        raise ValueError(f"axis must be 'x' or 'y', got {axis!r}")
    points = cloud.points.copy()
    points[:, "xy".index(axis)] *= -1
    return Cloud(points, cloud.labels)


def jitter(
    cloud: Cloud, sigma: float, rng: np.random.Generator, limit: float | None = None
) -> Cloud:
    """Shake each coordinate by a normal deviate.

    Args:
        cloud: The points.
        sigma: Metres.
        rng: Source of the deviates.
        limit: Largest deviation in metres; five times `sigma` if not given.
    """
    most = 5 * sigma if limit is None else limit
    noise = rng.standard_normal((len(cloud.points), 3), np.float32) * np.float32(sigma)
    points = cloud.points.copy()
    points[:, :3] += np.clip(noise, -most, most)
    return Cloud(points, cloud.labels)


def drop(cloud: Cloud, share: float, rng: np.random.Generator) -> Cloud:
    """Lose each point with the same probability."""
    return cloud.pick(rng.random(len(cloud.points)) >= share)


def hide_sector(cloud: Cloud, start: float, width: float) -> Cloud:
    """Lose what lies between two azimuths, given in radians."""
    azimuth = np.arctan2(cloud.points[:, 1], cloud.points[:, 0])
    return cloud.pick((azimuth - start) % (2 * np.pi) >= width)
