"""Roads, pavements and the land beside them: a height and a class for every place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparse3d.data.simulate.sensor import Rays

__all__ = ["Ground", "Road", "Side"]

Array = npt.NDArray[np.float32]
ROAD, SIDEWALK, TERRAIN = 40, 48, 72


@dataclass(frozen=True)
class Side:
    """What lies beside a road, outward from its edge.

    Attributes:
        kerb: Height of the kerb in metres.
        verge: Width of a strip of grass between road and pavement.
        pavement: Width of the pavement.
        slope: Rise of the land behind the pavement, metres per metre.
        reach: Width over which the land rises before it is level again.
    """

    kerb: float
    verge: float
    pavement: float
    slope: float
    reach: float

    @property
    def edge(self) -> float:
        """Distance from the road's edge to the outer edge of the pavement."""
        return self.verge + self.pavement


@dataclass(frozen=True)
class Road:
    """A road along a circle of large radius.

    Attributes:
        center: Centre of the circle.
        radius: Metres; its sign tells on which side the circle lies.
        heading: Direction of travel at station 0.
        half: Half the width of the carriageway.
        left: Land on the left of the direction of travel.
        right: Land on the right.
    """

    center: tuple[float, float]
    radius: float
    heading: float
    half: float
    left: Side
    right: Side

    @classmethod
    def through(
        cls,
        point: tuple[float, float],
        heading: float,
        curvature: float,
        half: float,
        left: Side,
        right: Side,
    ) -> Road:
        """A road that passes a point in a direction."""
        radius = 1 / curvature
        center = (
            point[0] - radius * np.sin(heading),
            point[1] + radius * np.cos(heading),
        )
        return cls(center, radius, heading, half, left, right)

    def lateral(self, x: Array, y: Array) -> Array:
        """Signed distance to the middle of the road, positive to the left."""
        gap = np.hypot(x - self.center[0], y - self.center[1])
        return np.asarray(np.sign(self.radius) * (abs(self.radius) - gap), np.float32)

    def place(self, station: float, lateral: float) -> tuple[float, float, float]:
        """x, y and heading at a station along the road and a distance to its left."""
        heading = self.heading + station / self.radius
        reach = self.radius - lateral
        x = self.center[0] + reach * np.sin(heading)
        y = self.center[1] - reach * np.cos(heading)
        return float(x), float(y), float(heading)


class Ground:
    """Height field over several roads.

    Args:
        roads: The first one is the one the sensor stands on.
        rng: Source of bumps and slopes.
    """

    def __init__(self, roads: list[Road], rng: np.random.Generator) -> None:
        self.roads = roads
        self.grade = rng.normal(0, 0.018, 2)
        self.bend = rng.normal(0, 0.0002, 2)
        self.camber = rng.uniform(0.0, 0.025)
        self.waves = rng.normal(0, 1, (6, 2)) * rng.choice([0.12, 0.3, 0.7], (6, 1))
        self.phases = rng.uniform(0, 2 * np.pi, 6)
        self.bumps = rng.uniform(0.0, 0.10)
        self.grass = rng.uniform(0.05, 0.16)
        self.zero = 0.0
        self.zero = float(self.height(np.zeros(1, np.float32), np.zeros(1, np.float32))[0])

    def height(self, x: Array, y: Array) -> Array:
        """Metres above the road under the sensor."""
        return self._survey(x, y)[0]

    def at(self, x: float, y: float) -> float:
        """Height at one place."""
        return float(self.height(np.array([x], np.float32), np.array([y], np.float32))[0])

    def _survey(self, x: Array, y: Array) -> tuple[Array, npt.NDArray[np.uint32]]:
        """Height and class."""
        gap = np.full(x.shape, np.inf, np.float32)
        kerb, verge, edge, slope, reach = (np.zeros(x.shape, np.float32) for _ in range(5))
        crown = np.zeros(x.shape, np.float32)
        for road in self.roads:
            lateral = road.lateral(x, y)
            out = np.abs(lateral) - road.half
            nearer = out < gap
            left = lateral > 0
            for side, mask in ((road.left, nearer & left), (road.right, nearer & ~left)):
                kerb[mask], verge[mask], edge[mask] = side.kerb, side.verge, side.edge
                slope[mask], reach[mask] = side.slope, side.reach
            crown[nearer] = -self.camber * np.minimum(np.abs(lateral[nearer]), road.half)
            gap = np.minimum(gap, out)
        outside = gap - edge
        height = crown + kerb * _smooth(gap / 0.06) + slope * np.clip(outside, 0, reach)
        rough = np.clip(outside / 1.5, 0, 1)
        waves = np.zeros(x.shape, np.float32)
        for (kx, ky), phase in zip(self.waves, self.phases, strict=True):
            waves += np.sin(kx * x + ky * y + np.float32(phase))
        height = height + self.bumps * rough * waves
        height = height + self.grade[0] * x + self.grade[1] * y
        height = height + self.bend[0] * x * x + self.bend[1] * y * y - self.zero
        label = np.full(x.shape, TERRAIN, np.uint32)
        label[(gap > verge) & (outside <= 0)] = SIDEWALK
        label[gap <= 0] = ROAD
        return height.astype(np.float32), label

    def cast(self, rays: Rays) -> None:
        """Let every ray meet the land: along each azimuth the skyline of a height profile."""
        sensor = rays.sensor
        steps = np.geomspace(1.2, sensor.max_range * 1.05, 420).astype(np.float32)
        x = np.cos(rays.azimuth)[:, None] * steps
        y = np.sin(rays.azimuth)[:, None] * steps
        z, _ = self._survey(x, y)
        rise = (z - rays.origin[2]) / steps  # tangent of the elevation of each profile point
        skyline = np.maximum.accumulate(rise, axis=1)
        wanted = np.tan(rays.elevation)
        # Lay the azimuths one after another so that one sorted search serves them all.
        lift = 4.0
        offset = (np.arange(len(skyline)) * lift)[:, None]
        first = np.searchsorted(
            (np.clip(skyline, -1.5, 1.5) + offset).reshape(-1), (wanted[None] + offset).reshape(-1)
        ).reshape(len(skyline), -1) - np.arange(len(skyline))[:, None] * len(steps)
        hit = (first > 0) & (first < len(steps))
        after = np.clip(first, 1, len(steps) - 1)
        low = np.take_along_axis(rise, after - 1, 1)
        high = np.take_along_axis(rise, after, 1)
        part = np.clip((wanted - low) / np.maximum(high - low, 1e-6), 0, 1)
        flat = steps[after - 1] + part * (steps[after] - steps[after - 1])
        x = np.cos(rays.azimuth)[:, None] * flat
        y = np.sin(rays.azimuth)[:, None] * flat
        _, label = self._survey(x, y)
        grazing = np.maximum(-np.sin(rays.elevation), 0.005)
        cosine = np.broadcast_to(grazing, flat.shape) + 0.02
        distance = flat / np.cos(rays.elevation)
        # Blades stop a ray somewhere above the soil.
        blade = self.grass * rays.rng.random(flat.shape, np.float32) ** 2
        shorten = np.minimum(blade / grazing, 0.08 * distance)
        distance = distance - np.where(label == TERRAIN, shorten, 0)
        rows = tuple(np.nonzero(hit))
        rays.keep(rows, distance[hit].astype(np.float32), label[hit], cosine=cosine[hit])


def _smooth(t: Array) -> Array:
    t = np.clip(t, 0, 1)
    return t * t * (3 - 2 * t)
