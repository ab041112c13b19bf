"""Areas that two convex quadrilaterals share: rotated boxes seen from above.

Green's theorem over the boundary of the intersection: it consists of the parts of either outline
that lie within the other, so no polygon has to be put together. A stretch of boundary that both
share counts once if they run the same way, and not at all if they run against each other (boxes
that touch).
"""

from __future__ import annotations

import torch

from .. import _check

__all__ = ["intersection_area", "quadrilateral_area"]


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
        float64 [P]; 0 where a quadrilateral has no area.

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
