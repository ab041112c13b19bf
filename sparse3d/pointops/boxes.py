"""Areas that two convex quadrilaterals share, and suppression of boxes that overlap.

Green's theorem over the boundary of the intersection: it consists of the parts of either outline
that lie within the other, so no polygon has to be put together. A stretch of boundary that both
share counts once if they run the same way, and not at all if they run against each other (boxes
that touch).

Corners on an Apple GPU, which has no float64, come to the CPU for it: areas go back in float32,
rounded once; suppression, whose every step waits for the one before, is the CPU's bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .. import _check

__all__ = [
    "intersection_area",
    "overlap_over_union",
    "quadrilateral_area",
    "suppress_boxes",
    "suppress_quadrilaterals",
]


def _home(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor where there is float64: on its device, or the CPU."""
    return tensor.cpu() if tensor.device.type == "mps" else tensor


def _back(areas: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Areas made in `_home`, on the device of a tensor that was not."""
    return areas.float().to(like.device) if like.device.type == "mps" else areas


def _cross(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def quadrilateral_area(corners: torch.Tensor) -> torch.Tensor:
    """Signed areas, positive where corners run counter-clockwise.

    Args:
        corners: [..., 4, 2].

    Returns:
        [...].
    """
    return _cross(corners, corners.roll(-1, -2)).sum(-1) / 2


def intersection_area(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Area of the intersection of each pair of convex quadrilaterals.

    Args:
        first: corners [P, 4, 2] in order, either way round.
        second: likewise, as many.

    Returns:
        float64 [P] (float32 on MPS); 0 where a quadrilateral has no area.

    Raises:
        ValueError: if the shapes are others, or differ.

    Example:
        >>> square = torch.tensor([[[0., 0], [1, 0], [1, 1], [0, 1]]])
        >>> intersection_area(square, square + 0.5)
        tensor([0.2500], dtype=torch.float64)
    """
    for name, corners in (("first", first), ("second", second)):
        if corners.ndim != 3 or corners.shape[1:] != (4, 2):
            _check.fail(name, "corners [P, 4, 2]", list(corners.shape))
    _check.same_rows("first", len(first), "second", len(second))
    return _back(_shared(_home(first), _home(second)), first)


def _shared(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    middle = first.double().mean(1, keepdim=True)
    a, b = (_counter_clockwise(x.double() - middle) for x in (first, second))
    area = _within(a, b, shared=True) + _within(b, a, shared=False)
    flat = (quadrilateral_area(a) == 0) | (quadrilateral_area(b) == 0)
    return area.clamp(min=0).masked_fill(flat, 0)


def _counter_clockwise(corners: torch.Tensor) -> torch.Tensor:
    turned = quadrilateral_area(corners)[:, None, None] < 0
    return torch.where(turned, corners.flip(1), corners)


def _within(outline: torch.Tensor, other: torch.Tensor, shared: bool) -> torch.Tensor:
    """What the parts of an outline inside the other quadrilateral [P] add to the area.

    Args:
        outline: [P, 4, 2], counter-clockwise.
        other: likewise.
        shared: count stretches that lie on the other's outline and run its way.
    """
    start, along = outline[:, :, None], (outline.roll(-1, 1) - outline)[:, :, None]  # [P, 4, 1, 2]
    corner, side = other[:, None], (other.roll(-1, 1) - other)[:, None]  # [P, 1, 4, 2]
    height, slope = _cross(side, start - corner), _cross(side, along)  # [P, 4, 4]
    meets = -height / slope.masked_fill(slope == 0, 1)
    first = meets.masked_fill(slope <= 0, 0).amax(2).clamp(min=0)
    last = meets.masked_fill(slope >= 0, 1).amin(2).clamp(max=1)
    same_way = (side * along).sum(-1) > 0
    inside = (height > 0) | ((height == 0) & same_way & shared)
    keeps = ((slope != 0) | inside).all(2) & (first < last)  # [P, 4]
    ends = [start[:, :, 0] + along[:, :, 0] * t[..., None] for t in (first, last)]
    return (_cross(*ends) / 2).masked_fill(~keeps, 0).sum(1)


def overlap_over_union(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Shared area over the area of the union, of each pair of convex quadrilaterals.

    Args:
        first: corners [P, 4, 2], as of `intersection_area`.
        second: likewise, as many.

    Returns:
        float64 [P] (float32 on MPS); 0 where neither has an area.
    """
    here = [_home(corners) for corners in (first, second)]
    shared = intersection_area(*here)
    areas = [quadrilateral_area(corners.double()).abs() for corners in here]
    total = areas[0] + areas[1] - shared
    return _back(torch.where(total > 0, shared / total.clamp(min=1e-300), 0), first)


def suppress_boxes(
    boxes: torch.Tensor, order: torch.Tensor, threshold: float, margin: float = 0.0
) -> torch.Tensor:
    """Upright boxes that none before them overlaps too much.

    Args:
        boxes: floating [N, 4 or more], (x1, y1, x2, y2) first.
        order: integers [M], rows from the best box on.
        threshold: a box goes if its overlap over union with a kept one reaches this.
        margin: added to the length of every side.

    Returns:
        int64 rows of the kept boxes, in that order. Boxes that share nothing never suppress.

    Raises:
        ValueError: if the shapes are others.
    """
    if boxes.ndim != 2 or boxes.shape[1] < 4:
        _check.fail("boxes", "of shape [N, 4 or more]", list(boxes.shape))
    here = _home(boxes)
    low, high = here[:, :2], here[:, 2:4]
    areas = (high - low + margin).prod(1)

    def overlap(one: int, rest: torch.Tensor) -> torch.Tensor:
        sides = torch.minimum(high[one], high[rest]) - torch.maximum(low[one], low[rest]) + margin
        shared = sides.clamp(min=0).prod(1)
        return torch.where(shared > 0, shared / (areas[one] + areas[rest] - shared), -1)

    return _suppress(order, threshold, overlap)


def suppress_quadrilaterals(
    corners: torch.Tensor, order: torch.Tensor, threshold: float, near: torch.Tensor | None = None
) -> torch.Tensor:
    """Rotated boxes that none before them overlaps too much.

    Args:
        corners: [N, 4, 2], as of `intersection_area`.
        order: integers [M], rows from the best box on.
        threshold: see `suppress_boxes`.
        near: bool [N, N], which pairs may overlap; None for all.

    Returns:
        int64 rows of the kept boxes, in that order.
    """
    here, pairs = _home(corners), None if near is None else _home(near)

    def overlap(one: int, rest: torch.Tensor) -> torch.Tensor:
        close = torch.ones_like(rest, dtype=torch.bool) if pairs is None else pairs[one, rest]
        found = here.new_full((len(rest),), -1, dtype=torch.float64)
        others = here[rest[close]]
        shared = overlap_over_union(here[one].expand_as(others), others)
        found[close] = torch.where(shared > 0, shared, -1)
        return found

    return _suppress(order, threshold, overlap)


def _suppress(
    order: torch.Tensor, threshold: float, overlap: Callable[[int, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    kept, rest = [], _home(_check.tensor("order", order, 1)).long()
    while len(rest):
        one, rest = int(rest[0]), rest[1:]
        kept.append(one)
        rest = rest[overlap(one, rest) < threshold]
    return order.new_tensor(kept, dtype=torch.int64)
