"""A street with everything in it, scanned: points and labels from nothing but a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparse3d.data.simulate import objects
from sparse3d.data.simulate.ground import Ground, Road, Side
from sparse3d.data.simulate.sensor import Rays, Sensor

__all__ = ["RAW_IDS", "SimulatedScan", "random_sensor", "simulate"]

RAW_IDS = (10, 30, 40, 48, 50, 51, 70, 71, 72, 80, 81)
"""SemanticKITTI raw ids that occur in a simulated scan."""

_OUTLIER = 1


@dataclass(frozen=True)
class SimulatedScan:
    """What the sensor saw.

    Attributes:
        points: float32 ``[N, 4]``: x, y, z in the sensor's frame in metres, remission in [0, 1].
        labels: uint32 ``[N]``: SemanticKITTI raw id, instance in the high 16 bits.
        sensor: The sensor it was seen with.
        seed: The seed that makes it again.
    """

    points: npt.NDArray[np.float32]
    labels: npt.NDArray[np.uint32]
    sensor: Sensor
    seed: int


def random_sensor(rng: np.random.Generator) -> Sensor:
    """A sensor as the demo weights are trained for: many mountings, beams and losses."""
    beams = int(rng.choice([32, 64, 64, 64, 128]))
    return Sensor(
        beams=beams,
        azimuths=int(rng.integers(1024, 1300)) if beams == 128 else int(rng.integers(1800, 2100)),
        height=float(rng.uniform(1.2, 2.2)),
        noise=float(rng.uniform(0.004, 0.03)),
        dropout=float(rng.uniform(0.0, 0.3)),
    )


def simulate(seed: int, sensor: Sensor | None = None) -> SimulatedScan:
    """Scan a random street.

    Args:
        seed: The same seed and sensor give the same scan.
        sensor: A 64-beam lidar at 1.73 m if not given.
    """
    sensor = sensor if sensor is not None else Sensor()
    rng = np.random.default_rng([seed, 0x57EE7])
    rays = Rays(sensor, rng)
    street = _Street(rays, rng)
    street.build()
    points, labels = rays.returns()
    points, labels = _ghosts(points, labels, rng)
    return SimulatedScan(points, labels, sensor, seed)


def _ghosts(
    points: npt.NDArray[np.float32], labels: npt.NDArray[np.uint32], rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
    """A few multipath returns, farther along the ray than what caused them (raw id 1)."""
    if len(points) == 0:
        return points, labels
    rows = rng.choice(len(points), rng.integers(0, 40), replace=True)
    points, labels = points.copy(), labels.copy()
    points[rows, :3] *= rng.uniform(1.3, 2.5, (len(rows), 1)).astype(np.float32)
    labels[rows] = _OUTLIER
    inside = np.linalg.norm(points[:, :3], axis=1) < 120
    return points[inside], labels[inside]


class _Street:
    """Lays out one scene and lets the rays meet it."""

    def __init__(self, rays: Rays, rng: np.random.Generator) -> None:
        self.rays = rays
        self.rng = rng
        self.taken: list[tuple[float, float, float]] = [(0.0, 0.0, 2.6)]
        half = rng.uniform(2.7, 6.0)
        heading = rng.uniform(-np.pi, np.pi)
        lane = -half * rng.uniform(0.2, 0.6)
        across = heading + np.pi / 2
        middle = (float(-np.cos(across) * lane), float(-np.sin(across) * lane))
        main = Road.through(middle, heading + rng.normal(0, 0.04), self._curvature(), half,
                            self._side(), self._side())  # fmt: skip
        self.roads = [main]
        if rng.random() < 0.6:
            station = rng.uniform(8, 45) * rng.choice([-1, 1])
            x, y, along = main.place(station, 0)
            turn = along + np.pi / 2 + rng.normal(0, 0.15)
            self.roads.append(Road.through((x, y), turn, self._curvature(), rng.uniform(2.5, 5),
                                           self._side(), self._side()))  # fmt: skip
        self.ground = Ground(self.roads, rng)
        self.urban = rng.random()
        self.instances = 0

    def _curvature(self) -> float:
        return float(self.rng.choice([-1, 1]) * self.rng.choice([1e-5, self.rng.uniform(0, 0.012)]))

    def _side(self) -> Side:
        rng = self.rng
        return Side(
            kerb=rng.uniform(0.1, 0.18),
            verge=rng.choice([0.0, rng.uniform(0.8, 4.0)], p=[0.75, 0.25]),
            pavement=rng.choice([0.0, rng.uniform(1.2, 4.5)], p=[0.12, 0.88]),
            slope=rng.choice([0.0, rng.normal(0, 0.12), rng.normal(0, 0.3)], p=[0.4, 0.4, 0.2]),
            reach=rng.uniform(2, 12),
        )

    def build(self) -> None:
        """Everything, the ground first."""
        self.ground.cast(self.rays)
        for road in self.roads:
            for sign, side in ((1, road.left), (-1, road.right)):
                self._frontage(road, sign, side)
                self._kerbside(road, sign, side)
        self._traffic()
        self._wild()

    def _free(self, x: float, y: float, radius: float, off_road: float | None = None) -> bool:
        """Claim a place unless something stands there or a road comes nearer than allowed."""
        if np.hypot(x, y) > self.rays.sensor.max_range + 10:
            return False
        if any(np.hypot(x - a, y - b) < radius + r for a, b, r in self.taken):
            return False
        if off_road is not None:
            for road in self.roads:
                at = np.array([x], np.float32), np.array([y], np.float32)
                if abs(float(road.lateral(*at)[0])) - road.half < off_road:
                    return False
        self.taken.append((x, y, radius))
        return True

    def _base(self, x: float, y: float) -> npt.NDArray[np.float32]:
        return np.array([x, y, self.ground.at(x, y)], np.float32)

    def _frontage(self, road: Road, sign: int, side: Side) -> None:
        """Houses, and the hedges, fences and walls in front of them."""
        rng = self.rng
        back = side.edge + rng.choice([0.1, rng.uniform(1, 5), rng.uniform(4, 14)])
        dense = self.urban * rng.uniform(0.5, 1.2)
        border = rng.choice(["hedge", "fence", "mixed", "none"])
        station = -85.0
        while station < 85:
            length = rng.uniform(7, 24)
            if rng.random() < dense:
                width, height = rng.uniform(7, 14), rng.uniform(3.0, 4.5) + 3 * rng.integers(0, 4)
                lateral = sign * (road.half + back + width / 2 + rng.uniform(0, 2.0))
                x, y, heading = road.place(station + length / 2, lateral)
                small = self._apart(x, y, min(length, width) / 2)
                if small and self._free(x, y, min(length, width) / 2, width / 2 + 0.5):
                    heading += rng.normal(0, 0.03)
                    base = self._base(x, y)
                    objects.building(self.rays, base, heading, (length, width), height)
            if border != "none" and back > side.edge + 0.8 and rng.random() < 0.75:
                self._border(road, station + length / 2, length, sign, side, border)
            station += length + rng.choice([0.0, rng.uniform(1, 8)])

    def _apart(self, x: float, y: float, radius: float) -> bool:
        """Whether a house here keeps clear of the sensor."""
        return bool(np.hypot(x, y) > radius + 5)

    def _border(
        self, road: Road, station: float, length: float, sign: int, side: Side, kind: str
    ) -> None:
        rng = self.rng
        step = 6.0
        plain = rng.choice(["hedge", "fence"]) if kind == "mixed" else kind
        lateral = sign * (road.half + side.edge + rng.uniform(0.2, 0.7))
        for start in np.arange(0, length, step):
            run = min(step, length - start)
            if run < 1.5 or rng.random() < 0.12:
                continue
            x, y, heading = road.place(station - length / 2 + start + run / 2, lateral)
            if not self._free(x, y, 0.4, side.edge + 0.1):
                continue
            if plain == "hedge":
                objects.hedge(self.rays, self._base(x, y), heading, run)
            else:
                objects.fence(self.rays, self._base(x, y), heading, run)

    def _kerbside(self, road: Road, sign: int, side: Side) -> None:
        """Parked cars, street trees, lamps, signs, bollards and people along one kerb."""
        rng = self.rng
        parked = rng.choice([0.0, 0.25, 0.7])
        square = rng.random() < 0.12
        station = -70.0
        while station < 70:
            if rng.random() < parked:
                inward = 2.6 if square else rng.uniform(0.95, 1.2)
                x, y, heading = road.place(station, sign * (road.half - inward))
                turn = np.pi / 2 if square else 0.0
                heading += turn + np.pi * rng.integers(0, 2) + rng.normal(0, 0.03)
                if self._free(x, y, 1.0 if square else 2.2):
                    self._car(x, y, heading)
            station += 2.7 if square else rng.uniform(5.0, 6.5)
        for what, count, low, high in (
            ("tree", rng.choice([0, 4, 12]), 0.4, max(side.edge, 1.0)),
            ("lamp", rng.integers(2, 8), 0.25, 1.2),
            ("sign", rng.integers(2, 9), 0.3, 1.4),
            ("bollard", rng.choice([0, 0, 6]), 0.2, 0.5),
            ("person", rng.integers(0, 9), 0.4, max(side.edge, 1.2)),
        ):
            for _ in range(count):
                reach = 35 if what in ("person", "sign") else 60
                station = rng.uniform(-reach, reach)
                lateral = sign * (road.half + rng.uniform(low, high))
                self._stand(what, *road.place(station, lateral))

    def _stand(self, what: str, x: float, y: float, heading: float) -> None:
        if not self._free(x, y, 0.35, 0.2):
            return
        base = self._base(x, y)
        if what == "tree":
            objects.tree(self.rays, base)
        elif what == "person":
            self.instances += 1
            heading = float(self.rng.uniform(-np.pi, np.pi))
            objects.person(self.rays, base, heading, self.instances)
        else:
            objects.pole(self.rays, base, heading + float(self.rng.normal(0, 0.2)), what)

    def _car(self, x: float, y: float, heading: float) -> None:
        self.instances += 1
        objects.car(self.rays, self._base(x, y), heading, self.instances)

    def _traffic(self) -> None:
        """Moving cars, and people crossing."""
        rng = self.rng
        for road in self.roads:
            for _ in range(rng.integers(0, 7)):
                side = rng.choice([-1, 1])
                x, y, heading = road.place(rng.uniform(-55, 55), side * road.half * 0.5)
                if self._free(x, y, 2.4):
                    self._car(x, y, heading + (np.pi if side > 0 else 0) + rng.normal(0, 0.05))
            for _ in range(rng.integers(0, 3)):
                x, y, heading = road.place(rng.uniform(-30, 30), rng.uniform(-1, 1) * road.half)
                if self._free(x, y, 0.4):
                    self.instances += 1
                    objects.person(self.rays, self._base(x, y), heading + np.pi / 2, self.instances)

    def _wild(self) -> None:
        """Trees and bushes in yards and open land."""
        rng = self.rng
        green = rng.uniform(0.2, 1.0)
        road = self.roads[0]
        for what, count in (
            ("tree", int(34 * green)),
            ("bush", int(70 * green)),
            ("thicket", int(7 * green)),
        ):
            for _ in range(count):
                sign = rng.choice([-1, 1])
                side = road.left if sign > 0 else road.right
                lateral = sign * (road.half + side.edge + 0.6 + rng.exponential(8))
                x, y, heading = road.place(rng.normal(0, 28), lateral)
                if what == "thicket":
                    self._thicket(x, y, heading, side.edge + 0.5)
                elif self._free(x, y, 0.5 if what == "tree" else 0.8, side.edge + 0.5):
                    base = self._base(x, y)
                    (objects.tree if what == "tree" else objects.bush)(self.rays, base)

    def _thicket(self, x: float, y: float, heading: float, off_road: float) -> None:
        """A row of shrubs and small trees grown into each other."""
        rng = self.rng
        heading += rng.normal(0, 0.4)
        for step in range(rng.integers(4, 12)):
            along = 1.1 * step + rng.normal(0, 0.3)
            px = x + along * np.cos(heading) + rng.normal(0, 0.4)
            py = y + along * np.sin(heading) + rng.normal(0, 0.4)
            if self._free(px, py, 0.3, off_road):
                base = self._base(px, py)
                (objects.tree if rng.random() < 0.2 else objects.bush)(self.rays, base)
