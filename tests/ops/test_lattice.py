"""Cells and places against floor division and products of Python integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparse3d.ops.coordinates import cells_of
from sparse3d.ops.lattice import (
    batch_count,
    extent,
    floored,
    in_cells,
    lattice_places,
    moved_by,
    on_lattice,
    window,
)

RNG = np.random.default_rng(11)


def rows(number: int = 60, axes: int = 3) -> torch.Tensor:
    made = RNG.integers(-20, 20, (number, 1 + axes)).astype(np.int32)
    made[:, 0] = RNG.integers(0, 3, number)
    return torch.from_numpy(made)


@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 3, 4), (8, 1, 5)])
def test_places_are_multiples_and_cells_lead_back(stride: tuple[int, ...]) -> None:
    cells = rows()
    places = lattice_places(cells, stride)
    wanted = [[b, *(p * s for p, s in zip(at, stride, strict=True))] for b, *at in cells.tolist()]
    assert places.tolist() == wanted
    assert places.dtype == torch.int32
    assert bool(on_lattice(places, stride).all())
    assert torch.equal(cells_of(places, stride), cells)
    known = [all(p % s == 0 for p, s in zip(at, stride, strict=True)) for _, *at in cells.tolist()]
    assert on_lattice(cells, stride).tolist() == known


def test_points_in_cells() -> None:
    points = torch.tensor([[1.0, 3.0, -5.0]])
    assert in_cells(points, (2, 4)).tolist() == [[1.0, 1.5, -1.25]]


def test_floored_narrows_and_refuses() -> None:
    assert floored("x", torch.tensor([-0.5, 1.9])).tolist() == [-1, 1]
    assert floored("x", torch.tensor([7], dtype=torch.int64)).dtype == torch.int32
    with pytest.raises(ValueError, match="coordinates must be within int32"):
        floored("coordinates", torch.tensor([3e9]))
    with pytest.raises(ValueError, match="coordinates must be within int32"):
        floored("coordinates", torch.tensor([float("nan")]))


@pytest.mark.parametrize("batch_column", [0, 3])
@pytest.mark.parametrize("scale", [None, (2, 1, 3)])
def test_every_row_at_every_offset(batch_column: int, scale: tuple[int, ...] | None) -> None:
    coords, offsets = rows(7), torch.tensor([[0, 0, 0], [1, -2, 3]], dtype=torch.int32)
    given = coords if batch_column == 0 else coords[:, [1, 2, 3, 0]]
    factor = None if scale is None else torch.tensor(scale)
    found = moved_by(given, offsets, factor, batch_column)
    assert found.shape == (2, 7, 4)
    for k, offset in enumerate(offsets.tolist()):
        for n, (batch, *at) in enumerate(coords.tolist()):
            place = [p * s + o for p, s, o in zip(at, scale or (1, 1, 1), offset, strict=True)]
            wanted = [batch, *place] if batch_column == 0 else [*place, batch]
            assert found[k, n].tolist() == wanted


@pytest.mark.parametrize("stride", [None, (2, 3, 4)])
@pytest.mark.parametrize("low", [None, (-20, 3, 8)])
def test_windows(stride: tuple[int, ...] | None, low: tuple[int, ...] | None) -> None:
    coords = rows()
    found = window(coords, None if low is None else torch.tensor([low]), stride)
    steps, corner = stride or (1, 1, 1), low or (0, 0, 0)
    wanted = [
        [b, *((p - a) // s for p, a, s in zip(at, corner, steps, strict=True))]
        for b, *at in coords.tolist()
    ]
    assert found.tolist() == wanted


def test_a_corner_alone_is_rounded_toward_zero() -> None:
    coords = torch.tensor([[1, 5, 5, 5]], dtype=torch.int32)
    low = torch.tensor([3, -3, 4])
    found = window(coords, low, (2, 2, 2), toward_zero=True)
    assert found.tolist() == [[1, 5 - 1, 5 + 1, 5 - 2]]
    assert window(coords, low, None, toward_zero=True).tolist() == [[1, 2, 8, 1]]


def test_extents() -> None:
    coords = torch.tensor([[0, 4, 0], [2, 1, 9]], dtype=torch.int32)
    assert extent(coords) == [5, 10]
    assert batch_count(coords) == 3
    assert extent(coords[:0]) == [0, 0]
    assert batch_count(coords[:0]) == 1


def test_what_does_not_fit_is_refused() -> None:
    coords = rows(4)
    for stride in ((2, 2), (0, 1, 1)):
        with pytest.raises(ValueError, match="stride must be 3 integers > 0, got"):
            lattice_places(coords, stride)
        with pytest.raises(ValueError, match="stride must be 3 integers > 0, got"):
            on_lattice(coords, stride)
    with pytest.raises(ValueError, match="offsets must be of 3 columns, got 2"):
        moved_by(coords, torch.zeros(1, 2, dtype=torch.int32))
    with pytest.raises(ValueError, match="batch_column must be 0 or 3, got 1"):
        moved_by(coords, torch.zeros(1, 3, dtype=torch.int32), batch_column=1)
    with pytest.raises(ValueError, match=r"low must be 3 numbers, got \[2\]"):
        window(coords, torch.zeros(2))
