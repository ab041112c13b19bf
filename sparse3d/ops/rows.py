"""Arithmetic of feature rows: row by row, between different sets of rows, with a row of channels.

    combine_rows(how, a, b)[i] = a[i] (how) b[i]
    combine_spread: the same over n rows, each side at places of its own and 0 elsewhere
    combine_segments(how, values, segments, ids)[i] = values[i] (how) segments[ids[i]]
    affine_rows(values, scale, shift)[i, c] = values[i, c] * scale[c] + shift[c]
    reduce_operands(how, [a, b, ...])[i] = reduction of a[i], b[i], ...

*Shapes.* rows [N, C]. *Dtypes.* torch's rules for elementwise operators. *Empty.* No rows give no
rows. *Gradient.* torch's; of rows that are spread, segment sums in fixed order.

Example:
    >>> import torch
    >>> from sparse3d.ops.rows import combine_segments
    >>> rows = torch.tensor([[1.0], [2.0], [3.0]])
    >>> combine_segments("add", rows, torch.tensor([[10.0], [20.0]]), torch.tensor([0, 1, 0]))
    tensor([[11.],
            [22.],
            [13.]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _check
from .segment import spread_segments

__all__ = [
    "affine_rows",
    "combine_rows",
    "combine_segments",
    "combine_spread",
    "reduce_operands",
]

OPERATORS: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
}
REDUCTIONS = ("sum", "mean", "var")
How = str | Callable[[Any, Any], torch.Tensor]


def _operator(how: How) -> Callable[[Any, Any], torch.Tensor]:
    if callable(how):
        return how
    if how not in OPERATORS:
        _check.fail("how", f"one of {tuple(OPERATORS)}", repr(how))
    return OPERATORS[how]


def combine_rows(how: How, left: torch.Tensor, right: torch.Tensor | float) -> torch.Tensor:
    """Two tensors, or a tensor and a number, element by element.

    Args:
        how: "add", "sub", "mul", "div" or "pow"; or a function of the two.
        left: of any shape.
        right: a tensor that broadcasts with `left`, or a number.

    Raises:
        ValueError: if `how` is another word.
    """
    return _operator(how)(_check.tensor("left", left), right)


def combine_spread(
    how: How,
    left: tuple[torch.Tensor, torch.Tensor],
    right: tuple[torch.Tensor, torch.Tensor],
    num: int,
    *,
    keep_left: bool = False,
) -> torch.Tensor:
    """Combine rows that lie at different places of a larger set; an absent row counts 0.

    Args:
        how: as of `combine_rows`.
        left: features [N, C], and their places int64 [N], distinct, in [0, num).
        right: likewise, [M, C] and [M].
        num: rows of the result.
        keep_left: where the right side is absent, give the left row as it is (MinkowskiEngine
            0.5.4's products and quotients).

    Returns:
        [num, C].

    Raises:
        ValueError: if `how` is another word, or features and places differ in number.
    """
    operator = _operator(how)
    (mine, places), (theirs, other_places) = left, right
    first, second = _spread(mine, places, num), _spread(theirs, other_places, num)
    made = operator(first, second)
    if not keep_left:
        return made
    alone = torch.ones(num, dtype=torch.bool, device=made.device)
    alone[other_places] = False
    return torch.where(alone[:, None], first, made)


def _spread(features: torch.Tensor, places: torch.Tensor, num: int) -> torch.Tensor:
    _check.same_rows("places", len(places), "features", len(features))
    source = torch.full((num,), -1, dtype=torch.int64, device=places.device)
    source[places] = torch.arange(len(places), device=places.device)
    return spread_segments(features, source)


def combine_segments(
    how: How, values: torch.Tensor, segments: torch.Tensor, ids: torch.Tensor
) -> torch.Tensor:
    """Each row with the row of its segment.

    Args:
        how: as of `combine_rows`.
        values: [N, C].
        segments: [S, C].
        ids: int64 [N], -1 for a row of zeros.

    Returns:
        [N, C].

    Raises:
        ValueError: if `how` is another word, or there are not N ids.
    """
    _check.same_rows("ids", len(ids), "values", len(values))
    return _operator(how)(values, spread_segments(segments, ids))


def affine_rows(
    values: torch.Tensor, scale: torch.Tensor | None = None, shift: torch.Tensor | None = None
) -> torch.Tensor:
    """Each channel times its scale, and its shift added.

    Args:
        values: [N, C].
        scale: C numbers in any shape, or None for 1.
        shift: likewise, or None for 0.

    Returns:
        [N, C]; `values` itself where both are None.

    Raises:
        ValueError: if there are not C numbers.
    """
    _check.per_channel("scale", scale, values.shape[1])
    _check.per_channel("shift", shift, values.shape[1])
    if scale is not None:
        values = values * scale.reshape(-1)
    return values if shift is None else values + shift.reshape(-1)


def reduce_operands(how: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum, mean or variance (biased) over tensors of one shape, element by element.

    Args:
        how: "sum", "mean" or "var".
        operands: at least one tensor.

    Raises:
        ValueError: if `how` is another word, there is no tensor, or shapes differ.
    """
    if how not in REDUCTIONS:
        _check.fail("how", f"one of {REDUCTIONS}", repr(how))
    shapes = {tuple(one.shape) for one in operands}
    if len(shapes) != 1:
        _check.fail("operands", "at least one tensor, all of one shape", sorted(shapes))
    stacked = torch.stack(list(operands))
    if how == "var":
        return stacked.var(0, correction=0)
    return stacked.sum(0) if how == "sum" else stacked.mean(0)
