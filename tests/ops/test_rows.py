"""Arithmetic of rows against loops over numbers of Python."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from sparse3d.ops.rows import (
    affine_rows,
    combine_rows,
    combine_segments,
    combine_spread,
    reduce_operands,
)

OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}


def drawn(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5


@pytest.mark.parametrize("how", OPERATORS)
def test_rows_are_combined_one_by_one(how: str) -> None:
    left, right = drawn(4, 3), drawn(4, 3).flip(0)
    wanted = [
        [OPERATORS[how](a, b) for a, b in zip(x, y, strict=True)]
        for x, y in zip(left.tolist(), right.tolist(), strict=True)
    ]
    torch.testing.assert_close(combine_rows(how, left, right), torch.tensor(wanted).double())
    number = [[OPERATORS[how](a, 2.0) for a in row] for row in left.tolist()]
    torch.testing.assert_close(combine_rows(how, left, 2.0), torch.tensor(number).double())


def spread(rows: torch.Tensor, places: torch.Tensor, num: int) -> list[list[float]]:
    made = [[0.0] * rows.shape[1] for _ in range(num)]
    for row, place in zip(rows.tolist(), places.tolist(), strict=True):
        made[place] = row
    return made


@pytest.mark.parametrize("how", ["add", "sub", "mul"])
@pytest.mark.parametrize("keep_left", [False, True])
def test_rows_at_places_of_their_own(how: str, keep_left: bool) -> None:
    left, right = drawn(3, 2).requires_grad_(), drawn(2, 2).requires_grad_()
    places, others = torch.tensor([4, 0, 2]), torch.tensor([2, 1])
    sides: Any = (left, places), (right, others)
    found = combine_spread(how, *sides, 6, keep_left=keep_left)
    first, second = spread(left, places, 6), spread(right, others, 6)
    for place in range(6):
        wanted = [OPERATORS[how](a, b) for a, b in zip(first[place], second[place], strict=True)]
        if keep_left and place not in (1, 2):
            wanted = first[place]
        assert found[place].tolist() == pytest.approx(wanted), place
    assert torch.autograd.gradcheck(
        lambda a, b: combine_spread(how, (a, places), (b, others), 6, keep_left=keep_left),
        (left, right),
    )


def test_a_function_may_stand_for_a_word() -> None:
    left, right = drawn(2, 2), drawn(2, 2)
    assert torch.equal(combine_rows(torch.maximum, left, right), torch.maximum(left, right))


@pytest.mark.parametrize("how", ["add", "mul"])
def test_rows_with_those_of_their_segments(how: str) -> None:
    values, segments = drawn(4, 2).requires_grad_(), drawn(2, 2).requires_grad_()
    ids = torch.tensor([1, 0, -1, 1])
    found = combine_segments(how, values, segments, ids)
    for row, segment in enumerate(ids.tolist()):
        other = segments[segment].tolist() if segment >= 0 else [0.0, 0.0]
        wanted = [OPERATORS[how](a, b) for a, b in zip(values[row].tolist(), other, strict=True)]
        assert found[row].tolist() == pytest.approx(wanted)
    assert torch.autograd.gradcheck(
        lambda a, b: combine_segments(how, a, b, ids), (values, segments)
    )


def test_channels_have_a_scale_and_a_shift() -> None:
    rows, scale, shift = drawn(3, 2), drawn(1, 2), drawn(2)
    found = affine_rows(rows, scale, shift).tolist()
    for given, made in zip(rows.tolist(), found, strict=True):
        wanted = [
            a * s + b for a, s, b in zip(given, scale[0].tolist(), shift.tolist(), strict=True)
        ]
        assert made == pytest.approx(wanted)
    assert affine_rows(rows) is rows
    assert torch.equal(affine_rows(rows, None, shift), affine_rows(rows, torch.ones(2), shift))
    assert affine_rows(rows[:0], scale, shift).shape == (0, 2)


@pytest.mark.parametrize("how", ["sum", "mean", "var"])
def test_operands_are_reduced(how: str) -> None:
    operands = [drawn(2, 2), drawn(2, 2) ** 2, drawn(2, 2) * 3]
    found = reduce_operands(how, operands)
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        values = [float(one[place]) for one in operands]
        mean = sum(values) / 3
        wanted = {"sum": sum(values), "mean": mean}
        wanted["var"] = sum((v - mean) ** 2 for v in values) / 3
        assert float(found[place]) == pytest.approx(wanted[how])


def test_what_does_not_fit_is_refused() -> None:
    rows = drawn(3, 2)
    with pytest.raises(ValueError, match=r"how must be one of \('add', 'sub'.*got 'xor'"):
        combine_rows("xor", rows, rows)
    with pytest.raises(TypeError, match=r"left must be a torch\.Tensor, got int"):
        combine_rows("add", 1, rows)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="places must be of 3 rows as features has, got 2 rows"):
        combine_spread("add", (rows, torch.arange(2)), (rows, torch.arange(3)), 3)
    with pytest.raises(ValueError, match="ids must be of 3 rows as values has, got 2 rows"):
        combine_segments("add", rows, rows, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"scale must be 2 numbers, one a channel, got \[3\]"):
        affine_rows(rows, torch.ones(3))
    with pytest.raises(ValueError, match=r"how must be one of .*, got 'max'"):
        reduce_operands("max", [rows])
    with pytest.raises(ValueError, match=r"operands must be at least one tensor, all of one shape"):
        reduce_operands("sum", [rows, rows[:1]])
    with pytest.raises(ValueError, match=r"all of one shape, got \[\]"):
        reduce_operands("sum", [])
