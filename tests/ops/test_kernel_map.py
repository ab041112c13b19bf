"""The four rules and the submanifold map against the oracle, and as properties."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
import torch
from contract.engine import coords_of, grid_of, on, oracle_map, targets
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tolerance import assert_same

from sparse3d._cases.clouds import Case, cases
from sparse3d.geometry import Geometry
from sparse3d.ops import kernel_map as ops
from sparse3d.ops.coordinates import coordinate_table

ALL = list(cases(duplicates=True))
SUBMANIFOLD = list(cases(duplicates=True, submanifold=True))

RULES = {
    "footprint": ops.kernel_map_footprint,
    "generative": ops.kernel_map_footprint,
    "floor": ops.kernel_map_floor,
    "given": ops.kernel_map_given,
}


def _geometry(case: Case) -> Geometry:
    return Geometry(*case.geometry.numbers)


def _run(case: Case, rule: str) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    coords = torch.from_numpy(case.coords)
    if rule == "submanifold":
        return None, list(
            ops.submanifold(coords, case.geometry.kernel_size, case.geometry.dilation)
        )
    if rule == "given":
        return None, list(ops.given(coords, torch.from_numpy(targets(case)), _geometry(case)))
    if rule == "floor":
        out, *pairs = ops.floor(coords, _geometry(case))
    elif rule == "generative":
        out, *pairs = ops.footprint(coords, _geometry(case), transposed=True)
    else:
        out, *pairs = ops.footprint(coords, _geometry(case), grid_of(case) or None)
    return out, pairs


def _check(case: Case, rule: str) -> None:
    expected = oracle_map(case, rule)
    out, (src, dst, splits) = _run(case, rule)
    if out is not None:
        assert_same(out, oracle.as_coords(expected.out, case.geometry.ndim), "out_coords")
        assert out.dtype == torch.int32
    assert_same(splits, expected.splits, "splits")
    assert_same(dst, expected.dst, "dst")
    assert_same(src, expected.src, "src")
    assert (src.dtype, dst.dtype, splits.dtype) == (torch.int32, torch.int32, torch.int64)
    assert splits.device.type == "cpu"


@pytest.mark.parametrize("case", ALL, ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_rules(rule: str, case: Case, backend: str) -> None:
    with on(backend, RULES[rule]):
        _check(case, rule)


@pytest.mark.parametrize("case", SUBMANIFOLD, ids=str)
def test_submanifold(case: Case, backend: str) -> None:
    with on(backend, ops.kernel_map_submanifold):
        _check(case, "submanifold")


@pytest.mark.parametrize("case", SUBMANIFOLD, ids=str)
def test_the_neighbour_table_holds_the_pairs(case: Case, backend: str) -> None:
    with on(backend, ops.kernel_map_submanifold, ops.kernel_map_neighbours):
        _, (src, dst, splits) = _run(case, "submanifold")
        coords = torch.from_numpy(case.coords)
        lists = (list(case.geometry.kernel_size), list(case.geometry.dilation))
        table = ops.kernel_map_neighbours(coords, coordinate_table(coords), *lists)
    there = table.t() >= 0
    assert_same(table.t()[there], src, "src")
    assert_same(there.nonzero()[:, 1].int(), dst, "dst")
    assert_same(there.sum(1).cumsum(0), splits[1:], "splits")


@pytest.mark.parametrize("case", list(cases(submanifold=True)), ids=str)
def test_mirrored_taps_swap_the_roles(case: Case, backend: str) -> None:
    with on(backend, ops.kernel_map_submanifold):
        _, (src, dst, splits) = _run(case, "submanifold")
    bounds = splits.tolist()
    volume = len(bounds) - 1
    for tap in range(volume // 2 + 1):
        here = slice(bounds[tap], bounds[tap + 1])
        there = slice(bounds[volume - 1 - tap], bounds[volume - tap])
        forward = sorted(zip(src[here].tolist(), dst[here].tolist(), strict=True))
        backward = sorted(zip(dst[there].tolist(), src[there].tolist(), strict=True))
        assert forward == backward


def test_outputs_at_the_edge_of_int32_are_left_out(backend: str) -> None:
    edge = 2**31 - 1
    coords = torch.tensor([[0, edge], [0, -edge - 1], [0, edge - 1]], dtype=torch.int32)
    geometry = Geometry((3,), (1,), (1,), (1,))
    with on(backend, ops.kernel_map_footprint, ops.kernel_map_submanifold):
        out, src, dst, splits = ops.footprint(coords, geometry)
        subm = ops.submanifold(coords, (3,), (1,))
    numbers = ((3,), (1,), (1,), (1,))
    expected = oracle.footprint_map(coords.numpy(), *numbers, None)
    inside = [q for q in expected.out if -edge - 1 <= q[1] <= edge]
    assert_same(out, np.array(inside, np.int64))
    assert splits[-1] == len(src) == len(dst) == 7
    near = oracle.submanifold_map(coords.numpy(), (3,), (1,))
    for ours, theirs in zip(subm, (near.src, near.dst, near.splits), strict=True):
        assert_same(ours, theirs)


def test_nothing_beyond_int32_or_of_a_padding_row_is_a_neighbour(backend: str) -> None:
    """Positions that overflow wrap around to sites that exist."""
    edge = 2**31 - 1
    coords = torch.tensor([[0, edge], [0, -edge - 1], [-1, 0], [-1, 1]], dtype=torch.int32)
    with on(backend, ops.kernel_map_neighbours):
        table = ops.kernel_map_neighbours(coords, coordinate_table(coords), [3], [1])
    none = [-1, -1, -1]
    assert table.tolist() == [[-1, 0, -1], [-1, 1, -1], none, none]


def test_rows_of_one_geometry_come_in_one_order_whatever_the_input_order(backend: str) -> None:
    """The sites are a matter of the set; shuffled inputs reorder rows within a sample only."""
    coords = coords_of("interleaved", 3)
    geometry = Geometry((3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1))
    with on(backend, ops.kernel_map_footprint):
        out, *_ = ops.footprint(coords, geometry)
        again, *_ = ops.footprint(coords.flip(0), geometry)
    assert (out[1:, 0] >= out[:-1, 0]).all()
    assert (again[1:, 0] >= again[:-1, 0]).all()
    assert set(map(tuple, out.tolist())) == set(map(tuple, again.tolist()))


# --------------------------------------------------------------------------------------- properties


def _axes(draw: Any, ndim: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(low, high), min_size=ndim, max_size=ndim)))


@st.composite
def problems(draw: Any) -> tuple[np.ndarray[Any, Any], Geometry]:
    """Any small cloud (duplicates, negatives, mixed batches) under any geometry of 1 to 4 axes."""
    ndim = draw(st.integers(1, 4))
    kernel = _axes(draw, ndim, 1, 4 if ndim < 4 else 2)
    geometry = Geometry(
        kernel, _axes(draw, ndim, 1, 3), _axes(draw, ndim, 0, 3), _axes(draw, ndim, 1, 3)
    )
    rows = draw(st.integers(0, 12))
    cells = draw(hnp.arrays(np.int32, (rows, ndim), elements=st.integers(-6, 6)))
    batch = draw(hnp.arrays(np.int32, (rows, 1), elements=st.integers(0, 2)))
    return np.concatenate([batch, cells], axis=1), geometry


def _pairs_hold(
    coords: oracle.Array, out: oracle.Array, pairs: list[torch.Tensor], geometry: Geometry
) -> int:
    """Every pair satisfies the equation, within one sample; taps ascend by dst. Returns pairs."""
    src, dst, splits = (part.numpy() for part in pairs)
    for index, tap in enumerate(oracle.taps(geometry.kernel_size)):
        part = slice(splits[index], splits[index + 1])
        p, q = coords[src[part]].astype(np.int64), out[dst[part]].astype(np.int64)
        assert (p[:, 0] == q[:, 0]).all()
        moved = q[:, 1:] * geometry.stride - np.array(geometry.padding)
        assert (p[:, 1:] == moved + np.array(tap) * geometry.dilation).all()
        assert (np.diff(dst[part]) >= 0).all()
    return int(splits[-1])


def _count(coords: oracle.Array, out: oracle.Array, geometry: Geometry) -> int:
    """How many (input row, output row, tap) triples satisfy the equation: by trying them all."""
    if not len(coords) or not len(out):
        return 0
    p = coords[:, None, None].astype(np.int64)
    q = out[None, :, None].astype(np.int64)
    tap = np.array(oracle.taps(geometry.kernel_size))[None, None]
    moved = q[..., 1:] * geometry.stride - np.array(geometry.padding) + tap * geometry.dilation
    return int(((p[..., 1:] == moved).all(-1) & (p[..., 0] == q[..., 0])).sum())


@pytest.mark.parametrize("examples", [60, pytest.param(2000, marks=pytest.mark.nightly)])
def test_every_pair_satisfies_the_equation_and_none_is_missing(examples: int, backend: str) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=examples < 100)
    @given(problems())
    def check(problem: tuple[np.ndarray[Any, Any], Geometry]) -> None:
        coords, geometry = problem
        ours = torch.from_numpy(coords)
        out, *pairs = ops.footprint(ours, geometry)
        assert _pairs_hold(coords, out.numpy(), pairs, geometry) == _count(
            coords, out.numpy(), geometry
        )
        # Rule given and rule floor look inputs up: of duplicates only the lowest row answers.
        first, _ = oracle.unique(coords)
        distinct = coords[first]
        cells, *pairs = ops.floor(torch.from_numpy(distinct), geometry)
        assert _pairs_hold(distinct, cells.numpy(), pairs, geometry) == _count(
            distinct, cells.numpy(), geometry
        )
        fine, src, dst, splits = ops.footprint(ours, geometry, transposed=True)
        swapped = [dst, src, splits]
        order = torch.cat(
            [
                torch.argsort(src[a:b], stable=True) + a
                for a, b in zip(splits[:-1].tolist(), splits[1:].tolist(), strict=True)
            ]
        )
        swapped = [dst[order], src[order], splits]
        assert _pairs_hold(fine.numpy(), coords, swapped, geometry) == _count(
            fine.numpy(), coords, geometry
        )

    with on(backend, *RULES.values()):
        check()


@pytest.mark.parametrize("examples", [40, pytest.param(1000, marks=pytest.mark.nightly)])
def test_a_shift_by_a_multiple_of_the_stride_shifts_the_output_and_nothing_else(
    examples: int, backend: str
) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=examples < 100)
    @given(problems(), st.lists(st.integers(-50, 50), min_size=4, max_size=4))
    def check(problem: tuple[np.ndarray[Any, Any], Geometry], steps: list[int]) -> None:
        coords, geometry = problem
        up = [s * n for s, n in zip(geometry.stride, steps[: geometry.ndim], strict=True)]
        here, moved = torch.from_numpy(coords), torch.from_numpy(oracle.shifted(coords, up))
        for find in (ops.footprint, ops.floor):
            before, after = find(here, geometry), find(moved, geometry)
            assert_same(after[0], oracle.shifted(before[0].numpy(), steps[: geometry.ndim]))
            for left, right in zip(before[1:], after[1:], strict=True):
                assert_same(right, left)

    with on(backend, *RULES.values()):
        check()


# ------------------------------------------------------------------------------------------- errors


def test_bad_arguments() -> None:
    coords = coords_of("random", 3)
    with pytest.raises(ValueError, match="kernel_size must be odd on every axis"):
        ops.submanifold(coords, (3, 2, 3), (1, 1, 1))
    flat = Geometry((3, 3), (1, 1), (1, 1), (1, 1))
    for call in (
        lambda: ops.footprint(coords, flat),
        lambda: ops.floor(coords, flat),
        lambda: ops.given(coords, coords, flat),
        lambda: ops.submanifold(coords, (3, 3), (1, 1)),
    ):
        with pytest.raises(ValueError, match="kernel_size must be of 3 entries as coords has axes"):
            call()
    with pytest.raises(TypeError, match="coords must be int32"):
        ops.footprint(coords.long(), Geometry((3,) * 3, (1,) * 3, (1,) * 3, (1,) * 3))
    with pytest.raises(ValueError, match="out_coords must be of 4 columns"):
        ops.given(coords, coords_of("random", 2), Geometry((3,) * 3, (1,) * 3, (1,) * 3, (1,) * 3))
