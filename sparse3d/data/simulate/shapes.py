"""Ray casting against the few shapes a street is made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sparse3d.data.simulate.sensor import Rays

__all__ = ["block", "cylinder", "foliage", "prism", "turned"]

Array = npt.NDArray[np.float32]
_NONE = np.float32(np.inf)


def turned(heading: float) -> Array:
    """Rows are the forward, left and up axes of an object with that heading."""
    c, s = np.cos(heading), np.sin(heading)
    return np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]], np.float32)


def prism(
    direction: Array, origin: Array, normals: Array, offsets: Array
) -> tuple[Array, Array, Array]:
    """Meet a convex body given by half-spaces ``n . x <= d``.

    Returns:
        Distance of entry (``inf`` = missed), distance of exit, cosine of incidence.
    """
    along = direction @ normals.T
    gap = offsets - normals @ origin
    with np.errstate(divide="ignore", invalid="ignore"):
        t = gap / along
    enter = np.where(along < 0, t, -_NONE)
    leave = np.where(along > 0, t, _NONE)
    face = enter.argmax(axis=1)
    near = np.take_along_axis(enter, face[:, None], 1)[:, 0]
    far = leave.min(axis=1)
    beside = ((along == 0) & (gap < 0)).any(axis=1)
    hit = (near <= far) & (near > 0) & ~beside
    cosine = np.abs(np.take_along_axis(along, face[:, None], 1)[:, 0])
    return np.where(hit, near, _NONE), far, cosine


def block(
    size: tuple[float, float],
    height: tuple[float, float],
    top: tuple[float, float] | None = None,
    shift: float = 0.0,
) -> tuple[Array, Array]:
    """Half-spaces of a box or frustum around the local origin.

    Args:
        size: Length and width at the bottom.
        height: z of bottom and top.
        top: Length and width at the top; the same as at the bottom if not given.
        shift: How far the top is moved forward.
    """
    length, width = size
    top_length, top_width = top if top is not None else size
    rise = height[1] - height[0]
    lean_front = (length / 2 - (top_length / 2 + shift)) / rise
    lean_back = (length / 2 - (top_length / 2 - shift)) / rise
    lean_side = (width - top_width) / 2 / rise
    normals = np.array(
        [[1, 0, lean_front], [-1, 0, lean_back], [0, 1, lean_side], [0, -1, lean_side],
         [0, 0, 1], [0, 0, -1]], np.float32,
    )  # fmt: skip
    low = height[0]
    offsets = np.array(
        [length / 2 + lean_front * low, length / 2 + lean_back * low,
         width / 2 + lean_side * low, width / 2 + lean_side * low, height[1], -low], np.float32,
    )  # fmt: skip
    scale = np.linalg.norm(normals, axis=1)
    return normals / scale[:, None], offsets / scale


def cylinder(
    rays: Rays,
    base: Array,
    radius: float,
    height: float,
    label: int,
    *,
    lean: tuple[float, float] = (0.0, 0.0),
    instance: int = 0,
    weak: float = 0.0,
    rough: float = 0.0,
) -> None:
    """A round post on ``base``, upright or leaning; ``rough`` is the depth of its bark."""
    middle = base + np.array([lean[0], lean[1], 1], np.float32) * np.float32(height / 2)
    direction, rows = rays.window(middle, float(np.hypot(height / 2 * 1.1, radius * 1.1)))
    # Shear the post upright: x' = x - lean * z keeps straight lines straight.
    dx = direction[:, 0] - lean[0] * direction[:, 2]
    dy = direction[:, 1] - lean[1] * direction[:, 2]
    drop = rays.origin - base
    ox, oy = drop[0] - lean[0] * drop[2], drop[1] - lean[1] * drop[2]
    a = dx * dx + dy * dy
    b = dx * ox + dy * oy
    root = b * b - a * (ox * ox + oy * oy - radius * radius)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (-b - np.sqrt(np.maximum(root, 0))) / a
    if rough:
        t = t + rays.rng.uniform(-rough, rough, len(t)).astype(np.float32)
    z = drop[2] + t * direction[:, 2]
    hit = (root > 0) & (z > 0) & (z < height)
    cosine = np.sqrt(np.maximum(root, 0)) / (radius * np.sqrt(np.maximum(a, 1e-9)))
    rays.keep(
        rows,
        np.where(hit, t, _NONE),
        label,
        instance=instance,
        cosine=np.minimum(cosine, 1),
        weak=weak,
    )


def foliage(
    rays: Rays,
    center: Array,
    radii: Array,
    density: float,
    label: int,
    *,
    clump: float = 0.6,
    box: bool = False,
    heading: float = 0.0,
    instance: int = 0,
) -> None:
    """Leaves in an ellipsoid (or a box): a ray travels an exponential free path between them.

    Args:
        rays: The rays.
        center: Middle of the volume.
        radii: Half axes along the heading, to its left, and upward.
        density: Leaves met per metre inside a clump.
        label: Raw class id.
        clump: Size of the clumps in metres; air lies between them.
        box: A hedge instead of a crown.
        heading: Direction of the first axis.
        instance: Number of the object within its class.
    """
    reach = float(np.linalg.norm(radii)) if box else float(radii.max())
    direction, rows = rays.window(center, reach)
    if len(direction) == 0:
        return
    axes = turned(heading)
    d = direction @ axes.T
    o = axes @ (rays.origin - center)
    if box:
        normals = np.concatenate([np.eye(3), -np.eye(3)]).astype(np.float32)
        near, far, _ = prism(d, o, normals, np.concatenate([radii, radii]))
        inside = near < far
    else:
        ds, os = d / radii, o / radii
        a = (ds * ds).sum(axis=1)
        b = ds @ os
        root = b * b - a * (os @ os - 1)
        half = np.sqrt(np.maximum(root, 0))
        near, far = (-b - half) / a, (-b + half) / a
        inside = (root > 0) & (far > 0)
        near = np.maximum(near, 0.05)
    pick = np.flatnonzero(inside & (near < rays.distance[rows]))
    if len(pick) == 0:
        return
    direction, near, far = direction[pick], near[pick].astype(np.float32), far[pick]
    rng = rays.rng
    wave = rng.normal(0, 1, (3, 3)).astype(np.float32) * np.float32(2.2 / clump)
    phase = rng.uniform(0, 2 * np.pi, 3).astype(np.float32)
    t = near.copy()
    hit = np.zeros(len(t), bool)
    alive = np.arange(len(t))
    for _ in range(7):  # delta tracking through a field of clumps
        t[alive] += rng.exponential(1 / density, len(alive)).astype(np.float32)
        alive = alive[t[alive] < far[alive]]
        if len(alive) == 0:
            break
        place = direction[alive] * t[alive, None] + (rays.origin - center)
        field = np.sin(place @ wave.T + phase).sum(axis=1)
        leaf = rng.random(len(alive), np.float32) < np.clip(0.55 + 0.5 * field, 0.04, 1)
        hit[alive[leaf]] = True
        alive = alive[~leaf]
    at = tuple(index[pick] for index in rows)
    cosine = rng.uniform(0.4, 1, len(t)).astype(np.float32)
    rays.keep(at, np.where(hit, t, _NONE), label, instance=instance, cosine=cosine, weak=0.03)
