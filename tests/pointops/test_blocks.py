"""Spans of heights against loops over points."""

from __future__ import annotations

import pytest
import torch

from sparse3d.pointops.blocks import block_bounds, blocks_of, spans_around

INF = float("inf")


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_spans_of_a_window(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    cells = torch.randint(0, 12, (40, 2), generator=generator, dtype=torch.int32)
    heights = torch.rand(40, generator=generator)
    blocks = blocks_of(cells, 2)
    assert blocks.tolist() == [[y // 2, x // 2] for y, x in cells.tolist()]
    low, high = block_bounds(blocks, heights, torch.full((6, 6), INF), torch.full((6, 6), -INF))
    points = list(zip(blocks.tolist(), heights.tolist(), strict=True))
    for y, x in blocks.tolist():
        own = [h for at, h in points if at == [y, x]]
        assert float(low[y, x]) == min(own)
        assert float(high[y, x]) == max(own)
    before = size // 2
    for (y, x), span in zip(blocks.tolist(), spans_around(blocks, low, high, size), strict=True):
        near = [
            h
            for (b, a), h in points
            if (0 <= b - y + before < size and 0 <= a - x + before < size) or [b, a] == [y, x]
        ]
        assert float(span) == pytest.approx(max(near) - min(near))


def test_bounds_that_are_there_count() -> None:
    at = torch.tensor([[0, 1]])
    low, high = block_bounds(at, torch.tensor([2.0]), torch.zeros(1, 2), torch.full((1, 2), 9.0))
    assert (low.tolist(), high.tolist()) == ([[0.0, 0.0]], [[9.0, 9.0]])
    empty = block_bounds(at[:0], torch.zeros(0), low, high)
    assert torch.equal(empty[0], low)
    assert spans_around(at[:0], low, high, 3).shape == (0,)


def test_what_does_not_fit_is_refused() -> None:
    at, low = torch.tensor([[3, 1]]), torch.zeros(2, 2)
    with pytest.raises(ValueError, match=r"bounds must be of at least \[4, 2\] blocks, got"):
        block_bounds(at, torch.zeros(1), low, low)
    with pytest.raises(ValueError, match="bounds must be of at least"):
        spans_around(-at, low, low, 1)
    with pytest.raises(ValueError, match=r"high must be of shape \[2, 2\] as low is, got \[1, 2\]"):
        spans_around(at, low, low[:1], 1)
    with pytest.raises(ValueError, match="heights must be of 1 rows as blocks has, got 2 rows"):
        block_bounds(at, torch.zeros(2), low, low)
    with pytest.raises(ValueError, match="factor must be > 0, got 0"):
        blocks_of(at, 0)
