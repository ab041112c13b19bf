"""Two clouds made into one: LaserMix and PolarMix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparse3d.data.augment.moving import Cloud, rotate

__all__ = ["THINGS", "laser_mix", "polar_mix"]

THINGS = (10, 11, 13, 15, 16, 18, 20, 30, 31, 32, *range(252, 260))
"""Raw ids of what has instances: vehicles and people, still or moving."""


def laser_mix(
    cloud: Cloud,
    other: Cloud,
    rng: np.random.Generator,
    bands: Sequence[int] = (3, 4, 5, 6),
    elevation: tuple[float, float] = (-25.0, 3.0),
) -> Cloud:
    """Bands of elevation taken in turn from two scans (Kong et al., CVPR 2023).

    Args:
        cloud: Gives the first band from the top, the third, ...
        other: Gives the second, the fourth, ...
        rng: Chooses the number of bands.
        bands: Numbers of bands to choose from.
        elevation: Lowest and highest edge in degrees; points beyond belong to the outermost band.
    """
    count = int(rng.choice(np.asarray(bands)))
    first, second = _band(cloud, count, elevation), _band(other, count, elevation)
    return cloud.pick(first % 2 == 0).join(other.pick(second % 2 == 1))


def _band(cloud: Cloud, count: int, elevation: tuple[float, float]) -> np.ndarray:
    """Band of each point, 0 on top."""
    x, y, z = (cloud.points[:, column].astype(np.float64) for column in range(3))
    angle = np.rad2deg(np.arctan2(z, np.hypot(x, y)))
    low, high = elevation
    part = (high - angle) / (high - low) * count
    return np.clip(np.floor(part), 0, count - 1).astype(np.int64)


def polar_mix(
    cloud: Cloud,
    other: Cloud,
    rng: np.random.Generator,
    swap: float = 0.5,
    things: Sequence[int] = THINGS,
) -> Cloud:
    """Half a turn of another scan, and its instances at three azimuths (Xiao et al., NeurIPS 2022).

    Args:
        cloud: The scan that is kept, but for the half that is swapped.
        other: Where the half turn and the instances come from.
        rng: Chooses whether and where to cut, and the two further azimuths.
        swap: Probability of the swap; the instances are pasted always.
        things: Raw ids of the classes that are pasted.
    """
    mixed = cloud
    if rng.random() < swap:
        start = rng.uniform(-np.pi, np.pi)
        mixed = cloud.pick(~_within(cloud, start)).join(other.pick(_within(other, start)))
    pasted = other.pick(np.isin(other.labels & 0xFFFF, things))
    third = 2 * np.pi / 3
    for angle in (0.0, rng.uniform(0, third), rng.uniform(third, 2 * third)):
        mixed = mixed.join(rotate(pasted, angle))
    return mixed


def _within(cloud: Cloud, start: float) -> np.ndarray:
    """Points of the half turn that begins at an azimuth."""
    azimuth = np.arctan2(cloud.points[:, 1], cloud.points[:, 0])
    return np.asarray((azimuth - start) % (2 * np.pi) < np.pi)
