"""The things that stand in a street, each put together from a few shapes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparse3d.data.simulate.sensor import Rays
from sparse3d.data.simulate.shapes import block, cylinder, foliage, prism, turned

__all__ = ["building", "bush", "car", "fence", "hedge", "person", "pole", "tree"]

Array = npt.NDArray[np.float32]
CAR, PERSON, BUILDING, FENCE, VEGETATION, TRUNK, POLE, SIGN = 10, 30, 50, 51, 70, 71, 80, 81
_NONE = np.float32(np.inf)


class _Frame:
    """Rays near an object, expressed in the object's own axes."""

    def __init__(
        self, rays: Rays, base: Array, heading: float, reach: float, middle: float
    ) -> None:
        self.rays = rays
        self.axes = turned(heading)
        center = base + np.array([0, 0, middle], np.float32)
        direction, self.rows = rays.window(center, reach)
        self.direction = direction @ self.axes.T
        self.origin = self.axes @ (rays.origin - base)

    def meet(
        self, solid: tuple[Array, Array], shift: tuple[float, float, float] = (0, 0, 0)
    ) -> tuple[Array, Array, Array]:
        """`prism` against a solid moved by ``shift``."""
        moved = self.origin - np.array(shift, np.float32)
        return prism(self.direction, moved, *solid)

    def place(self, t: Array) -> Array:
        """Local position of the hits; meaningless where t is infinite."""
        reach = np.where(np.isfinite(t), t, np.float32(0))
        return np.asarray(self.origin + self.direction * reach[:, None], np.float32)

    def keep(self, t: Array, label: int, cosine: Array, instance: int = 0, weak: float = 0) -> None:
        self.rays.keep(self.rows, t, label, cosine=cosine, instance=instance, weak=weak)


def building(
    rays: Rays, base: Array, heading: float, size: tuple[float, float], height: float
) -> None:
    """A house or block: walls with recessed windows, a flat or pitched roof, bays, a chimney."""
    rng = rays.rng
    length, width = size
    roof = rng.uniform(1.5, 4.0) if rng.random() < 0.65 else 0.0
    reach = float(np.hypot(np.hypot(length, width) / 2 + 1, (height + roof + 2) / 2))
    frame = _Frame(rays, base, heading, reach, (height + roof) / 2 - 1)
    if len(frame.direction) == 0:
        return
    solid = block(size, (-2.0, height))
    t, _, cosine = frame.meet(solid)
    t = _windows(frame, t, size, height, rng)
    frame.keep(t, BUILDING, cosine, weak=0.02)
    if roof:
        over = rng.uniform(0.1, 0.6)
        ridge = (length + over, 0.05) if rng.random() < 0.7 else (max(length - width, 0.3), 0.05)
        t, _, cosine = frame.meet(
            block((length + over, width + over), (height, height + roof), ridge)
        )
        frame.keep(t, BUILDING, cosine)
    for _ in range(rng.integers(0, 4)):
        side = rng.choice([-1, 1])
        bay = block((rng.uniform(1.2, 4), rng.uniform(0.5, 1.6)),
                    (0, 2.6) if rng.random() < 0.5 else (2.4, 3.5))  # fmt: skip
        along = rng.uniform(-0.4, 0.4) * length
        t, _, cosine = frame.meet(bay, (along, side * width / 2, 0))
        frame.keep(t, BUILDING, cosine)


def _windows(
    frame: _Frame, t: Array, size: tuple[float, float], height: float, rng: np.random.Generator
) -> Array:
    """Push hits inside window and door openings back into the wall, or lose them in glass."""
    place = frame.place(t)
    length, width = size
    front = np.abs(np.abs(place[:, 1]) - width / 2) < 0.02
    along = np.where(front, place[:, 0] + length / 2, place[:, 1] + width / 2)
    pitch, wide = rng.uniform(1.8, 4.5), rng.uniform(0.35, 0.65)
    storey, sill, tall = rng.uniform(2.6, 3.4), rng.uniform(0.6, 1.0), rng.uniform(1.1, 1.7)
    column = np.abs((along / pitch) % 1 - 0.5) < wide / 2
    level = place[:, 2] % storey
    row = (level > sill) & (level < sill + tall) & (place[:, 2] < height - 0.3)
    door = (np.abs(along - length * 0.4) < 0.5) & (place[:, 2] < 2.1)
    opening = (column & row) | door
    deep = rng.uniform(0.05, 0.3)
    normal = np.where(front, np.abs(frame.direction[:, 1]), np.abs(frame.direction[:, 0]))
    t = np.where(opening, t + deep / np.maximum(normal, 0.2), t)
    glass = rng.uniform(0.2, 0.8)
    lost = opening & ~door & (rng.random(len(t)) < glass)
    return np.where(lost & (rng.random(len(t)) < 0.9), _NONE, t).astype(np.float32)


def car(rays: Rays, base: Array, heading: float, instance: int) -> None:
    """A car or van: body, cabin with glass that swallows rays, bonnet, four wheels."""
    rng = rays.rng
    van = rng.random() < 0.15
    length = rng.uniform(4.6, 5.9) if van else rng.uniform(3.6, 4.9)
    width = rng.uniform(1.85, 2.05) if van else rng.uniform(1.62, 1.9)
    roof = rng.uniform(1.9, 2.5) if van else rng.uniform(1.38, 1.75)
    belt = rng.uniform(1.0, 1.25) if van else rng.uniform(0.82, 1.0)
    sill = rng.uniform(0.18, 0.32)
    paint = rng.choice([0.0, 0.1, 0.35], p=[0.4, 0.4, 0.2])
    reach = float(np.hypot(np.hypot(length, width) / 2, roof / 2)) + 0.1
    frame = _Frame(rays, base, heading, reach, roof / 2)
    if len(frame.direction) == 0:
        return
    middle = (sill + belt) / 2
    t, _, cosine = frame.meet(block((length - 0.25, width - 0.1), (sill, middle), (length, width)))
    frame.keep(t, CAR, cosine, instance, paint)
    t, _, cosine = frame.meet(block((length, width), (middle, belt), (length - 0.25, width - 0.14)))
    frame.keep(t, CAR, cosine, instance, paint)
    hood = 0.7 if van else rng.uniform(0.9, 1.35)
    boot = 0.05 if van or rng.random() < 0.5 else rng.uniform(0.4, 0.9)
    foot = length - hood - boot
    top = foot - (rng.uniform(0.4, 0.8) if van else rng.uniform(0.9, 1.6))
    at = (-length / 2 + boot + foot / 2, 0.0, 0.0)
    cabin = block((foot, width - 0.14), (belt, roof), (top, width - 0.5), rng.uniform(-0.25, 0.05))
    t, far, cosine = frame.meet(cabin, at)
    z = frame.place(t)[:, 2]
    glass = (z > belt + 0.06) & (z < roof - 0.13) & (not van or rng.random() < 0.5)
    inside = rng.random(len(t)) < 0.25
    deep = t + rng.uniform(0.15, 1.2, len(t)).astype(np.float32)
    through = np.where(inside & (deep < far), deep, _NONE)
    opaque = rng.random(len(t)) < rng.uniform(0.15, 0.6)
    frame.keep(np.where(glass & ~opaque, through, t), CAR, cosine, instance, paint)
    radius = rng.uniform(0.29, 0.36)
    angles = np.arange(8) * np.pi / 4
    normals = np.stack([np.cos(angles), 0 * angles, np.sin(angles)], 1)
    normals = np.concatenate([normals, [[0, 1, 0], [0, -1, 0]]]).astype(np.float32)
    wheel = (normals, np.array([radius] * 8 + [0.1, 0.1], np.float32))
    for ahead in (-0.31, 0.31):
        for side in (-1, 1):
            shift = (ahead * length, side * (width / 2 - 0.1), radius)
            t, _, cosine = frame.meet(wheel, shift)
            frame.keep(t, CAR, cosine, instance, 0.2)


def person(rays: Rays, base: Array, heading: float, instance: int) -> None:
    """Two legs in step, torso, arms and head."""
    rng = rays.rng
    tall = rng.uniform(1.5, 1.92)
    stride = rng.uniform(0.0, 0.28)
    hip, neck = 0.48 * tall, 0.84 * tall
    ahead, left = turned(heading)[0], turned(heading)[1]
    for side in (-1, 1):
        foot = base + side * 0.09 * left + side * stride * 0.5 * ahead
        lean = -side * stride * 0.5 / hip * ahead
        cylinder(rays, foot.astype(np.float32), rng.uniform(0.065, 0.1), hip, PERSON,
                 lean=(float(lean[0]), float(lean[1])), instance=instance)  # fmt: skip
        shoulder = np.asarray(base + side * rng.uniform(0.2, 0.26) * left, np.float32)
        shoulder[2] += hip - 0.05
        swing = side * rng.uniform(0, 0.35) * ahead
        cylinder(rays, shoulder.astype(np.float32), 0.05, neck - hip, PERSON,
                 lean=(float(swing[0]), float(swing[1])), instance=instance)  # fmt: skip
    frame = _Frame(rays, base, heading, tall / 2 + 0.2, tall / 2)
    torso = block((0.22, 0.34), (hip - 0.08, neck), (0.26, rng.uniform(0.38, 0.5)))
    t, _, cosine = frame.meet(torso)
    frame.keep(t, PERSON, cosine, instance)
    head = base + np.array([0, 0, neck - 0.02], np.float32)
    cylinder(rays, head, 0.1, tall - neck + 0.02, PERSON, instance=instance)


def pole(rays: Rays, base: Array, heading: float, kind: str) -> None:
    """A street lamp, a sign on a post, or a bollard."""
    rng = rays.rng
    if kind == "bollard":
        cylinder(rays, base, rng.uniform(0.05, 0.1), rng.uniform(0.8, 1.2), POLE)
        return
    if kind == "lamp":
        height = rng.uniform(4, 9)
        cylinder(
            rays,
            base,
            rng.choice([rng.uniform(0.05, 0.1), rng.uniform(0.1, 0.16)], p=[0.8, 0.2]),
            height,
            POLE,
        )
        return
    height = rng.uniform(2.2, 3.4)
    cylinder(rays, base, rng.uniform(0.03, 0.06), height, POLE)
    wide, tall = rng.uniform(0.45, 1.2), rng.uniform(0.45, 0.9)
    frame = _Frame(rays, base, heading, float(np.hypot(wide, tall)), height)
    plate = block((0.05, wide), (height - tall, height + 0.1))
    t, _, cosine = frame.meet(plate, (-0.08, 0, 0))
    frame.keep(t, SIGN, cosine)


def tree(rays: Rays, base: Array) -> None:
    """A trunk and a crown of several leafy volumes, or a conifer leafy to the ground."""
    rng = rays.rng
    height = rng.uniform(4, 13)
    lean = (float(rng.normal(0, 0.04)), float(rng.normal(0, 0.04)))
    if rng.random() < 0.15:
        wide = height * rng.uniform(0.14, 0.25)
        center = base + np.array([0, 0, height / 2], np.float32)
        radii = np.array([wide, wide, height / 2], np.float32)
        foliage(rays, center, radii, rng.uniform(1.5, 4), VEGETATION, clump=0.5)
        return
    clear = rng.uniform(0.5, min(rng.choice([1.8, 3.6]), height * 0.5))
    wide = rng.uniform(0.11, 0.36)
    cylinder(rays, base, wide, clear + height * 0.25, TRUNK, lean=lean, rough=wide * 0.12)
    crown = (height - clear) / 2
    spread = crown * rng.uniform(0.5, 0.9)
    for _ in range(rng.integers(2, 6)):
        offset = rng.normal(0, 0.4, 3) * [spread, spread, crown * 0.5]
        center = base + np.array([lean[0] * height, lean[1] * height, clear + crown]) + offset
        size = np.array([spread, spread, crown]) * rng.uniform(0.5, 0.9, 3)
        lowest = base[2] + clear * 0.85
        size[2] = min(size[2], center[2] - lowest)
        if size[2] > 0.2:
            foliage(rays, center.astype(np.float32), size.astype(np.float32),
                    rng.uniform(0.6, 3.0), VEGETATION, clump=rng.uniform(0.3, 1.0))  # fmt: skip


def bush(rays: Rays, base: Array) -> None:
    """A shrub: one or more leafy volumes on the ground."""
    rng = rays.rng
    for _ in range(rng.integers(1, 4)):
        radii = rng.uniform(0.35, 1.3, 3)
        radii[2] = rng.uniform(0.3, 1.4)
        center = base + rng.normal(0, 0.5, 3) * [1, 1, 0] + [0, 0, radii[2] * rng.uniform(0.4, 0.9)]
        foliage(rays, center.astype(np.float32), radii.astype(np.float32),
                rng.uniform(2, 9), VEGETATION, clump=rng.uniform(0.2, 0.5))  # fmt: skip


def hedge(rays: Rays, base: Array, heading: float, length: float) -> None:
    """A clipped hedge."""
    rng = rays.rng
    tall = rng.uniform(0.8, 2.4)
    radii = np.array([length / 2, rng.uniform(0.25, 0.7), tall / 2 + 0.2], np.float32)
    center = base + np.array([0, 0, tall / 2 - 0.2], np.float32)
    foliage(rays, center, radii, rng.uniform(5, 16), VEGETATION, clump=rng.uniform(0.15, 0.4),
            box=True, heading=heading)  # fmt: skip


def fence(rays: Rays, base: Array, heading: float, length: float) -> None:
    """A garden wall, a picket fence or wire mesh, with posts."""
    rng = rays.rng
    kind = rng.choice(["wall", "picket", "mesh"], p=[0.4, 0.4, 0.2])
    tall = rng.uniform(0.5, 1.3) if kind == "wall" else rng.uniform(0.8, 1.8)
    thick = rng.uniform(0.12, 0.3) if kind == "wall" else 0.04
    frame = _Frame(rays, base, heading, float(np.hypot(length / 2, tall)) + 0.2, tall / 2)
    if len(frame.direction) == 0:
        return
    t, _, cosine = frame.meet(block((length, thick), (-0.6, tall)))
    if kind != "wall":
        along = frame.place(t)[:, 0]
        if kind == "picket":
            solid = (along / rng.uniform(0.1, 0.2)) % 1 < rng.uniform(0.45, 0.85)
        else:
            solid = rng.random(len(t)) < rng.uniform(0.3, 0.6)
        solid |= (along / 2.2) % 1 < 0.04
        t = np.where(solid, t, _NONE).astype(np.float32)
    frame.keep(t, FENCE, cosine)
