"""Codes along curves: bit by bit, neighbour by neighbour, there and back."""

from __future__ import annotations

import itertools

import pytest
import torch

from sparse3d.pointops.curves import (
    hilbert_cells,
    hilbert_codes,
    site_codes,
    sites_of_codes,
    z_order_cells,
    z_order_codes,
)


def every_cell(bits: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(1 << bits), repeat=3)))


def test_z_order_bit_by_bit() -> None:
    cells = torch.randint(0, 1 << 21, (200, 3))
    for cell, code in zip(cells.tolist(), z_order_codes(cells, 21).tolist(), strict=True):
        digits = zip(*[f"{value:021b}" for value in cell], strict=True)
        assert code == int("".join("".join(three) for three in digits), 2)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_the_hilbert_curve_goes_from_cell_to_neighbour(bits: int) -> None:
    cells = every_cell(bits)
    codes = hilbert_codes(cells, bits)
    assert sorted(codes.tolist()) == list(range(8**bits))
    path = cells[codes.argsort()]
    assert (path.diff(dim=0).abs().sum(1) == 1).all()
    assert path[0].tolist() == [0, 0, 0]
    assert path[-1].tolist() == [(1 << bits) - 1, 0, 0]  # along axis 0, as Skilling has it
    coarse = hilbert_codes(cells >> 1, bits - 1) if bits > 1 else torch.zeros(8).long()
    order = coarse[codes.argsort()]
    assert (order.diff() >= 0).all()  # a coarse cell is left once it is full


@pytest.mark.parametrize("bits", [1, 5, 21])
def test_there_and_back(bits: int) -> None:
    cells = torch.randint(0, 1 << bits, (500, 3)).int()
    assert torch.equal(z_order_cells(z_order_codes(cells, bits), bits), cells)
    assert torch.equal(hilbert_cells(hilbert_codes(cells, bits), bits), cells)
    nothing = torch.zeros(0, 3).int()
    assert z_order_cells(z_order_codes(nothing, bits), bits).shape == (0, 3)
    assert hilbert_cells(hilbert_codes(nothing, bits), bits).shape == (0, 3)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match=r"cells must be in \[0, 4\), got 0 to 4"):
        z_order_codes(torch.tensor([[0, 0, 4]]), 2)
    with pytest.raises(ValueError, match=r"bits must be in \[1, 21\], got 22"):
        hilbert_codes(torch.zeros(1, 3).long(), 22)
    with pytest.raises(ValueError, match=r"cells must be of shape \[N, 3\]"):
        hilbert_codes(torch.zeros(1, 4).long(), 2)


@pytest.mark.parametrize("order", ["z_order", "hilbert"])
def test_the_batch_lies_above_the_cell(order: str) -> None:
    cells = torch.tensor(list(itertools.product(range(4), repeat=3)), dtype=torch.int32)
    sites = torch.cat([torch.cat([cells.new_full((64, 1), b), cells], 1) for b in range(3)])
    codes = site_codes(sites, 2, order)
    own = {"z_order": z_order_codes, "hilbert": hilbert_codes}[order](cells, 2)
    assert codes.tolist() == [64 * b + int(code) for b in range(3) for code in own]
    assert torch.equal(sites_of_codes(codes, 2, order), sites)
    assert sites_of_codes(torch.tensor([-1], dtype=torch.int32), 10).tolist()[0][0] == 3
    with pytest.raises(ValueError, match=r"order must be one of .*, got 'peano'"):
        site_codes(sites, 2, "peano")
