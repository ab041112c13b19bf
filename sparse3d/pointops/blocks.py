"""Heights of the ground's blocks: the span between the lowest and the highest point around each.

Voxels of a map seen from above lie in blocks of several cells; a window of blocks around each tells
whether something stands there (a large span) or the ground is flat.

*Shapes.* blocks int [P, 2] (row, column), bounds [Y, X]. *Empty.* A block without points is
(inf, -inf), as the caller's bounds start. *Gradient.* None. *Determinism.* Exact: minima, maxima.

Example:
    >>> import torch
    >>> from sparse3d.pointops.blocks import block_bounds, spans_around
    >>> low, high = torch.full((1, 3), float("inf")), torch.full((1, 3), float("-inf"))
    >>> at = torch.tensor([[0, 0], [0, 1]])
    >>> low, high = block_bounds(at, torch.tensor([1.0, 4.0]), low, high)
    >>> spans_around(at, low, high, 2).tolist()
    [0.0, 3.0]
"""

from __future__ import annotations

import itertools

import torch

from .. import _check
from .scatter import scatter_max, scatter_min

__all__ = ["block_bounds", "blocks_of", "spans_around"]


def blocks_of(cells: torch.Tensor, factor: int) -> torch.Tensor:
    """The block of `factor` cells an axis that each cell [M, 2] lies in."""
    return torch.div(cells, _check.positive("factor", factor), rounding_mode="floor")


def block_bounds(
    blocks: torch.Tensor, heights: torch.Tensor, low: torch.Tensor, high: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Bounds with the heights of points taken in.

    Args:
        blocks: integers [P, 2], each point's block.
        heights: [P].
        low: [Y, X], lowest heights so far.
        high: [Y, X], highest heights so far.

    Raises:
        ValueError: if rows or bounds do not fit, or a block lies outside.
    """
    _check.same_rows("heights", len(heights), "blocks", len(blocks))
    _check_blocks(blocks, low, high)
    place = blocks[:, 0].long() * low.shape[1] + blocks[:, 1].long()
    least, _ = scatter_min(heights.to(low.dtype), place, initial=low.reshape(-1))
    most, _ = scatter_max(heights.to(high.dtype), place, initial=high.reshape(-1))
    return least.reshape(low.shape), most.reshape(high.shape)


def spans_around(
    blocks: torch.Tensor, low: torch.Tensor, high: torch.Tensor, size: int
) -> torch.Tensor:
    """Highest less lowest point in a window of `size` x `size` blocks around each block.

    The window begins `size // 2` before the block, and always holds the block itself.

    Args:
        blocks: integers [M, 2].
        low: [Y, X].
        high: [Y, X].
        size: blocks of the window an axis.

    Returns:
        [M], of the bounds' dtype.

    Raises:
        ValueError: if bounds do not fit, or a block lies outside.
    """
    _check_blocks(blocks, low, high)
    before = size // 2
    around = [before, size - before] * 2
    lowest = torch.nn.functional.pad(low, around, value=float("inf"))
    highest = torch.nn.functional.pad(high, around, value=float("-inf"))
    rows, columns = blocks.long().unbind(1)
    least, most = low[rows, columns], high[rows, columns]
    for row, column in itertools.product(range(size), repeat=2):
        near = rows + row, columns + column
        least, most = torch.minimum(least, lowest[near]), torch.maximum(most, highest[near])
    return most - least


def _check_blocks(blocks: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> None:
    if _check.tensor("low", low, 2).shape != _check.tensor("high", high, 2).shape:
        _check.fail("high", f"of shape {list(low.shape)} as low is", list(high.shape))
    if len(blocks) == 0:
        return
    least, most = torch.aminmax(blocks, dim=0)
    bounds = [int(most[0]) + 1, int(most[1]) + 1]
    if int(least.min()) < 0 or bounds[0] > low.shape[0] or bounds[1] > low.shape[1]:
        _check.fail("bounds", f"of at least {bounds} blocks", list(low.shape))
