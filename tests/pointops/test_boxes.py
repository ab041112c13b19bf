"""Shared areas of rotated boxes against clipping, corner by corner, in plain Python."""

from __future__ import annotations

import math

import pytest
import torch

from sparse3d.pointops.boxes import (
    intersection_area,
    overlap_over_union,
    quadrilateral_area,
    suppress_boxes,
    suppress_quadrilaterals,
)

Point = tuple[float, float]


def clipped(subject: list[Point], clip: list[Point]) -> float:
    """Sutherland and Hodgman's clipping, then the shoelace formula."""
    out = subject
    for (ax, ay), (bx, by) in zip(clip, [*clip[1:], clip[0]], strict=True):
        kept, out = out, []
        for p, q in zip(kept, [*kept[1:], *kept[:1]], strict=True):
            sp, sq = ((bx - ax) * (y - ay) - (by - ay) * (x - ax) for x, y in (p, q))
            if sp >= 0:
                out.append(p)
            if (sp < 0) != (sq < 0) and sp != sq:
                t = sp / (sp - sq)
                out.append((p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])))
    pairs = zip(out, [*out[1:], *out[:1]], strict=True)
    return sum(p[0] * q[1] - p[1] * q[0] for p, q in pairs) / 2


def boxes(count: int, spread: float) -> torch.Tensor:
    """Corners [count, 4, 2] of rotated rectangles, counter-clockwise."""
    half = torch.rand(count, 1, 2, dtype=torch.float64) * 2 + 0.2
    signs = torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]]).double()
    angle = torch.rand(count, dtype=torch.float64) * 2 * math.pi
    c, s = angle.cos(), angle.sin()
    turn = torch.stack([torch.stack([c, -s], 1), torch.stack([s, c], 1)], 1)
    middle = torch.rand(count, 1, 2, dtype=torch.float64) * spread
    return (signs * half) @ turn.mT + middle


def test_random_boxes() -> None:
    a, b = boxes(400, 6), boxes(400, 6)
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    wanted = [clipped([tuple(p) for p in x], [tuple(p) for p in y]) for x, y in pairs]
    got = intersection_area(a, b)
    torch.testing.assert_close(got, torch.tensor(wanted, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert 50 < int((got > 0).sum()) < 400
    torch.testing.assert_close(intersection_area(b, a), got, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(intersection_area(a.flip(1), b), got)  # clockwise


def test_shared_sides_corners_and_nests() -> None:
    square = torch.tensor([[0.0, 0], [2, 0], [2, 2], [0, 2]])
    cases = {
        (0.0, 0.0): 4.0,  # itself
        (2.0, 0.0): 0.0,  # touches along a side
        (2.0, 2.0): 0.0,  # touches at a corner
        (0.0, 1.0): 2.0,  # two sides in common
        (5.0, 5.0): 0.0,
    }
    for move, area in cases.items():
        for far in (0.0, 1000.0):
            one = square[None] + far
            assert intersection_area(one, one + torch.tensor(move)).item() == pytest.approx(area)
    inner = (square - 1) * 0.25 + 1
    assert intersection_area(square[None], inner[None]).item() == pytest.approx(0.25)
    diamond = torch.tensor([[1.0, 0], [2, 1], [1, 2], [0, 1]])  # corners on the square's sides
    assert intersection_area(square[None], diamond[None]).item() == pytest.approx(2)


def test_flat_boxes_and_no_boxes() -> None:
    line = torch.tensor([[[0.0, 0], [2, 0], [2, 0], [0, 0]]])
    square = torch.tensor([[[0.0, -1], [2, -1], [2, 1], [0, 1]]])
    assert intersection_area(line, square).item() == 0
    assert intersection_area(torch.zeros(0, 4, 2), torch.zeros(0, 4, 2)).shape == (0,)
    assert quadrilateral_area(square).item() == 4
    with pytest.raises(ValueError, match=r"first must be corners \[P, 4, 2\]"):
        intersection_area(torch.zeros(2, 4, 3), square)
    with pytest.raises(ValueError, match="first"):
        intersection_area(square.repeat(2, 1, 1), square)


def greedy(order: list[int], threshold: float, overlap: dict[Point, float]) -> list[int]:
    """Suppression with sets: a box goes if one kept before it overlaps by the threshold or more."""
    kept: list[int] = []
    for one in order:
        if all(overlap.get((other, one), -1.0) < threshold for other in kept):
            kept.append(one)
    return kept


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.4, 0.7])
@pytest.mark.parametrize("margin", [0.0, 1.0])
def test_upright_boxes_are_suppressed(threshold: float, margin: float) -> None:
    low = torch.rand(60, 2, dtype=torch.float64) * 2
    found = torch.cat([low, low + torch.rand(60, 2) * 3 + 0.1, torch.rand(60, 1)], 1)
    order = torch.randperm(60)[:50]
    overlap: dict[Point, float] = {}
    for i, (ax, ay, bx, by, _) in enumerate(found.tolist()):
        for j, (cx, cy, dx, dy, _) in enumerate(found.tolist()):
            w, h = min(bx, dx) - max(ax, cx) + margin, min(by, dy) - max(ay, cy) + margin
            if w > 0 and h > 0:
                own = (bx - ax + margin) * (by - ay + margin)
                other = (dx - cx + margin) * (dy - cy + margin)
                overlap[i, j] = w * h / (own + other - w * h)
    kept = suppress_boxes(found, order, threshold, margin).tolist()
    assert kept == greedy(order.tolist(), threshold, overlap)
    assert 1 < len(kept) < 50


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("listed", [False, True])
def test_rotated_boxes_are_suppressed(threshold: float, listed: bool) -> None:
    found, order = boxes(40, 5), torch.randperm(40)[:35]
    near = (torch.rand(40, 40) > 0.3) if listed else None
    corners = [[tuple(point) for point in box] for box in found.tolist()]
    areas = [clipped(box, box) for box in corners]
    overlap: dict[Point, float] = {}
    for i in range(40):
        for j in range(40):
            shared = clipped(corners[i], corners[j])
            if shared > 1e-12 and (near is None or near[i, j]):
                overlap[i, j] = shared / (areas[i] + areas[j] - shared)
    kept = suppress_quadrilaterals(found, order, threshold, near).tolist()
    assert kept == greedy(order.tolist(), threshold, overlap)
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    shares = overlap_over_union(found[pairs[:, 0]], found[pairs[:, 1]])
    for (i, j), share in zip(pairs.tolist(), shares.tolist(), strict=True):
        if near is None:
            assert share == pytest.approx(overlap.get((i, j), 0.0), abs=1e-9)


def test_nothing_to_suppress() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert suppress_boxes(torch.zeros(0, 4), none, 0.5).tolist() == []
    assert suppress_quadrilaterals(torch.zeros(0, 4, 2), none, 0.5).tolist() == []
    flat = torch.tensor([[[0.0, 0], [2, 0], [2, 0], [0, 0]]])
    assert overlap_over_union(flat, flat).tolist() == [0]
    with pytest.raises(ValueError, match=r"boxes must be of shape \[N, 4 or more\]"):
        suppress_boxes(torch.zeros(2, 3), none, 0.5)
