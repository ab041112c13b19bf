"""The spinning lidar of the simulator: where its rays point and which returns it loses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Rays", "Sensor"]

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sensor:
    """A lidar on a car.

    Attributes:
        beams: 64 is the two-block pattern of the HDL-64E (+2 to -24.8 degrees), 32 and 128 are
            evenly spread; any other number from 8 on is spread over +2 to -24.8.
        azimuths: Firings per turn.
        height: Metres above the road.
        noise: Standard deviation of the range in metres.
        dropout: Share of returns lost at random, on top of those lost by range and angle.
        max_range: Metres; no return comes from farther.
    """

    beams: int = 64
    azimuths: int = 2083
    height: float = 1.73
    noise: float = 0.012
    dropout: float = 0.02
    max_range: float = 80.0

    def __post_init__(self) -> None:
        if self.beams < 8:
            raise ValueError(f"beams must be at least 8, got {self.beams}")
        if self.azimuths < 16:
            raise ValueError(f"azimuths must be at least 16, got {self.azimuths}")
        if not 0.5 <= self.height <= 5:
            raise ValueError(f"height must lie in [0.5, 5] m, got {self.height}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.noise < 0:
            raise ValueError(f"noise must be at least 0 m, got {self.noise}")
        if self.max_range <= 3:
            raise ValueError(f"max_range must be more than 3 m, got {self.max_range}")

    def elevations(self) -> Array:
        """Elevation of each beam in radians, from the top down."""
        if self.beams == 64:
            upper = 2.0 - np.arange(32) / 3
            lower = -8.83 - np.arange(32) * (24.8 - 8.83) / 31
            degrees = np.concatenate([upper, lower])
        elif self.beams == 32:
            degrees = np.linspace(10.67, -30.67, 32)
        elif self.beams == 128:
            degrees = np.linspace(15.0, -25.0, 128)
        else:
            degrees = np.linspace(2.0, -24.8, self.beams)
        return np.asarray(np.deg2rad(degrees), np.float32)


class Rays:
    """Unit directions ``[azimuths, beams, 3]`` and the nearest hit found so far.

    Objects are met one after another; each tests only the rays of its own angular window.
    """

    def __init__(self, sensor: Sensor, rng: np.random.Generator) -> None:
        self.sensor = sensor
        self.rng = rng
        elevation = sensor.elevations()
        self.elevation = elevation + rng.normal(0, 2e-4, len(elevation)).astype(np.float32)
        start = rng.uniform(0, 2 * np.pi / sensor.azimuths)
        self.azimuth = (
            start - np.pi + np.arange(sensor.azimuths) * 2 * np.pi / sensor.azimuths
        ).astype(np.float32)
        flat = np.cos(self.elevation)
        shape = (sensor.azimuths, sensor.beams)
        self.direction = np.empty((*shape, 3), np.float32)
        self.direction[..., 0] = np.cos(self.azimuth)[:, None] * flat
        self.direction[..., 1] = np.sin(self.azimuth)[:, None] * flat
        self.direction[..., 2] = np.sin(self.elevation)
        self.origin = np.array([0, 0, sensor.height], np.float32)
        self.distance = np.full(shape, np.inf, np.float32)
        self.label = np.zeros(shape, np.uint32)
        self.instance = np.zeros(shape, np.uint32)
        self.cosine = np.ones(shape, np.float32)
        self.weak = np.zeros(shape, np.float32)

    def window(
        self, center: Array, radius: float
    ) -> tuple[Array, tuple[npt.NDArray[np.intp], ...]]:
        """Directions ``[K, 3]`` that may meet a ball, and where they stand in the tables."""
        away = center - self.origin
        flat = float(np.hypot(away[0], away[1]))
        step = 2 * np.pi / self.sensor.azimuths
        if flat <= radius * 1.02:
            columns = np.arange(self.sensor.azimuths)
        else:
            middle = np.arctan2(away[1], away[0])
            half = np.arcsin(radius / flat)
            low = int(np.floor((middle - half - self.azimuth[0]) / step))
            high = int(np.ceil((middle + half - self.azimuth[0]) / step))
            columns = np.arange(low, high + 1) % self.sensor.azimuths
        near = max(flat - radius, 0.3)
        high_angle = np.arctan2(away[2] + radius, near if away[2] + radius > 0 else flat + radius)
        low_angle = np.arctan2(away[2] - radius, near if away[2] - radius < 0 else flat + radius)
        seen = np.flatnonzero((self.elevation <= high_angle) & (self.elevation >= low_angle))
        table = np.ix_(columns, seen)
        where = tuple(np.broadcast_arrays(*table))
        rows = tuple(index.reshape(-1) for index in where)
        return self.direction[rows], rows

    def keep(
        self,
        rows: tuple[npt.NDArray[np.intp], ...],
        distance: Array,
        label: int | npt.NDArray[np.uint32],
        *,
        instance: int = 0,
        cosine: Array | float = 1.0,
        weak: float = 0.0,
    ) -> None:
        """Record hits (``inf`` = none) that are nearer than what was there.

        Args:
            rows: Positions from `window`.
            distance: Metres along each ray.
            label: Raw class id, one for all or one a ray.
            instance: Number of the object within its class, 0 for none.
            cosine: Cosine of the angle of incidence.
            weak: Share of returns this material swallows (dark paint, glass).
        """
        nearer = (distance > 0.8) & (distance < self.distance[rows])
        if not nearer.any():
            return
        at = tuple(index[nearer] for index in rows)
        self.distance[at] = distance[nearer]
        self.label[at] = label[nearer] if isinstance(label, np.ndarray) else label
        self.instance[at] = instance
        self.cosine[at] = cosine[nearer] if isinstance(cosine, np.ndarray) else cosine
        self.weak[at] = weak

    def returns(self) -> tuple[Array, npt.NDArray[np.uint32]]:
        """Points ``[N, 4]`` in the sensor's frame and labels, beam by beam from the top."""
        sensor, rng = self.sensor, self.rng
        distance = self.distance.T
        shape = distance.shape
        lit = distance < sensor.max_range
        far = np.where(lit, distance, sensor.max_range) / sensor.max_range
        # Received power falls with range and grazing angle; below a threshold nothing comes back.
        power = np.clip(self.cosine.T, 0.02, 1.0) ** 0.5 * (1.05 - far) ** 0.7
        lit &= power + rng.normal(0, 0.03, shape) > 0.075
        lost = 1 - (1 - sensor.dropout) * (1 - self.weak.T)
        lit &= rng.random(shape) >= lost
        bias = rng.normal(0, sensor.noise, (len(distance), 1))
        noisy = distance[lit] + np.broadcast_to(bias, shape)[lit]
        noisy = (noisy + rng.normal(0, sensor.noise, noisy.shape)).astype(np.float32)
        direction = self.direction.transpose(1, 0, 2)[lit]
        labels = self.label.T[lit]
        remission = _REMISSION[np.minimum(labels, 127)] * (0.4 + 0.6 * self.cosine.T[lit])
        remission = remission + rng.normal(0, 0.06, remission.shape)
        points = np.empty((len(labels), 4), np.float32)
        points[:, :3] = direction * noisy[:, None]
        points[:, 3] = np.round(np.clip(remission, 0, 0.99), 2)
        return points, labels | (self.instance.T[lit] << np.uint32(16))


_REMISSION = np.full(128, 0.25, np.float32)
_REMISSION[[10, 30, 40, 48, 50, 51, 70, 71, 72, 80, 81]] = (
    0.2, 0.35, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.35, 0.3, 0.8,
)  # fmt: skip
