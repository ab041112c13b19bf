"""`KernelMap` and the coordinate sets that cache it."""

from __future__ import annotations

import copy
import itertools
import pickle
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from contract.engine import coords_of, oracle_map, random
from tolerance import assert_close, assert_same

from sparse3d import Coordinates, KernelMap, _registry
from sparse3d import kernel_map as maps
from sparse3d._cases.clouds import GEOMETRIES, Case
from sparse3d.geometry import Geometry
from sparse3d.kernel_map import MapStats
from sparse3d.ops.conv import conv

CASES = [Case("interleaved", g) for g in GEOMETRIES]


def _map(case: Case) -> KernelMap:
    sites = Coordinates(torch.from_numpy(case.coords), None, 3)
    shape = oracle.output_shape(case.grid or (), *case.geometry.numbers)
    return sites.footprint(Geometry(*case.geometry.numbers), shape if min(shape) > 0 else None)[0]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_views_of_the_pairs(case: Case) -> None:
    found, expected = _map(case), oracle_map(case, "footprint")
    assert (found.num_in, found.num_out) == (len(case.coords), len(expected.out))
    assert len(found) == expected.total
    assert_same(found.neighbours(), oracle.neighbour_table(expected.pairs, found.num_out))
    for tap, pairs in enumerate(expected.pairs):
        src, dst = found.tap(tap)
        assert list(zip(src.tolist(), dst.tolist(), strict=True)) == pairs
    stats = found.stats(4, 8, 2)
    counts = [len(pairs) for pairs in expected.pairs]
    assert stats.pairs_per_tap == counts
    assert stats.matmuls == sum(n > 0 for n in counts)
    assert (stats.pairs, stats.macs) == (expected.total, expected.total * 4 * 8 // 2)
    assert stats.density == expected.total / (len(expected.out) * len(counts))


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_the_transposed_twin_swaps_roles_without_copying(case: Case, name: str) -> None:
    if name != "reference" and (reason := _registry.load(name)) is not None:
        pytest.skip(f"{name}: {reason}")
    found = _map(case)
    twin = found.transposed()
    assert twin.src.data_ptr() == found.dst.data_ptr()
    assert twin.dst.data_ptr() == found.src.data_ptr()
    assert twin.transposed().src.data_ptr() == found.src.data_ptr()
    x = random((found.num_out, 4), torch.float32).requires_grad_()
    weight = random((6, found.num_taps, 4), torch.float32, 1)
    with _registry.force(name):
        # Both directions in one go: the twins share their plans and must not mix them up.
        out = conv(x, weight, twin)
        again = conv(out[:, :4], weight, found)
        torch.autograd.backward(again.sum())
    pairs = oracle_map(case, "footprint").pairs
    swapped = [[(o, i) for i, o in tap] for tap in pairs]
    rows, kernel = x.detach().numpy(), weight.numpy()
    expected = oracle.convolve(rows, kernel, swapped, found.num_in)
    assert_close(out, expected, torch.float32)
    twice = oracle.convolve(expected[:, :4], kernel, pairs, found.num_out)
    assert_close(again, twice, torch.float32)
    ones = np.ones((found.num_out, 6))
    middle = np.zeros((found.num_in, 6))
    middle[:, :4] = oracle.convolve_input_grad(ones, kernel, pairs, found.num_in)
    back = oracle.convolve_input_grad(middle, kernel, swapped, found.num_out)
    assert_close(x.grad, back, torch.float32)


def test_layers_of_equal_geometry_share_a_map_until_the_indices_change() -> None:
    indices = coords_of("interleaved", 3)
    sites = Coordinates(indices, None, 3)
    first = sites.submanifold((3, 3, 3), (1, 1, 1))
    assert sites.submanifold((3, 3, 3), (1, 1, 1)) is first
    assert sites.submanifold((3, 3, 3), (2, 2, 2)) is not first
    geometry = Geometry((2,) * 3, (2,) * 3, (0,) * 3, (1,) * 3)
    assert sites.footprint(geometry, None)[0] is sites.footprint(geometry, None)[0]
    indices[:, 1] += 40 * (indices[:, 2] % 2)
    again = sites.submanifold((3, 3, 3), (1, 1, 1))
    assert again is not first
    expected = oracle.submanifold_map(indices.numpy(), (3, 3, 3), (1, 1, 1))
    assert_same(again.src, expected.src)
    assert_same(again.dst, expected.dst)


def test_maps_travel() -> None:
    found = _map(CASES[0])
    found.plan()
    for other in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), found.to("cpu")):
        assert_same(other.src, found.src)
        assert_same(other.splits, found.splits)
        assert other.geometry == found.geometry


def test_rows_meet_themselves_through_taps_of_their_own() -> None:
    indices = coords_of("interleaved", 3)
    sites, rows = Coordinates(indices, None, 3), len(indices)
    taps = torch.from_numpy(np.random.default_rng(3).integers(0, 4, rows))
    taps[taps == 2] = 1  # one without rows
    found = sites.pointwise(taps, 5)
    x, weight = random((rows, 4), torch.float64), random((6, 5, 4), torch.float64, 1)
    expected = np.einsum("nc,noc->no", x.numpy(), weight.numpy()[:, taps.numpy()].swapaxes(0, 1))
    assert_close(conv(x, weight, found), expected, torch.float64)
    empty = Coordinates(indices[:0], None, 1).pointwise(taps[:0], 5)
    assert conv(x[:0], weight, empty).shape == (0, 6)
    with pytest.raises(ValueError, match=r"taps must be in \[0, 3\), got 3"):
        sites.pointwise(taps, 3)
    with pytest.raises(ValueError, match=r"taps must be in \[0, 5\), got -1"):
        sites.pointwise(taps - 1, 5)
    with pytest.raises(ValueError, match=r"taps must be in \[0, 2\), got 4"):
        sites.pointwise(taps + 1, 2)  # none is below zero: the highest is told


@pytest.mark.parametrize("transposed", [False, True])
def test_sites_that_some_taps_reach(transposed: bool) -> None:
    indices = coords_of("interleaved", 3)
    sites = Coordinates(indices, None, 3)
    geometry = Geometry((3,) * 3, (2,) * 3, (1,) * 3, (1,) * 3)
    every, all_sites = sites.reached(geometry, transposed=transposed)
    assert every is not None
    assert sites.reached(geometry, range(27), transposed=transposed)[0] is every
    assert sites.reached(geometry, [*range(27), 5], transposed=transposed)[0] is every
    cross = [4, 10, 12, 13, 14, 16, 22]
    pairs, some = sites.reached(geometry, cross, transposed=transposed)
    assert pairs is None
    met = {int(row) for tap in cross for row in every.tap(tap)[1]}
    assert_same(some, all_sites[sorted(met)])
    again = sites.reached(geometry, cross * 4, transposed=transposed)  # 28 numbers, 7 taps
    assert again[0] is None
    assert_same(again[1], some)
    assert 0 < len(some) < len(all_sites)


# ----------------------------------------------------------------------------- maps as values


def line(*places: int, batch: int = 1) -> Coordinates:
    """Sites of one axis in one sample."""
    indices = torch.tensor([[0, place] for place in places], dtype=torch.int32).reshape(-1, 2)
    return Coordinates(indices, None, batch)


def by_hand(**flags: bool) -> KernelMap:
    """A map as a user makes it: tap 0 is empty, tap 2 has one pair."""
    src, dst = (
        torch.tensor([2, 0, 1], dtype=torch.int32),
        torch.tensor([0, 1, 1], dtype=torch.int32),
    )
    sides = line(0, 1, 2).indices, line(4, 5).indices
    return KernelMap(src, dst, torch.tensor([0, 0, 2, 3]), *sides, FEW, **flags)


FEW = Geometry((3,), (2,), (1,), (1,))


def test_what_a_map_costs() -> None:
    found = by_hand()
    assert found.stats() == MapStats([0, 2, 1], pairs=3, matmuls=2, macs=3, density=3 / 6)
    assert found.stats(5).macs == 15
    assert found.stats(5, 2).macs == 30
    macs = found.stats(6, 4, 2).macs
    assert (macs, type(macs)) == (36, int)
    nothing = line().submanifold((3,), (1,)).stats(4, 4)
    assert nothing == MapStats([0, 0, 0], 0, 0, 0, 0.0)


def test_a_map_by_hand_claims_nothing() -> None:
    found = by_hand()
    assert (found.mirrored, found.is_transposed, found.distinct) == (False, False, False)
    assert (len(found), found.num_in, found.num_out, found.num_taps) == (3, 3, 2, 3)
    assert found.taps().tolist() == [1, 1, 2]
    assert found.neighbours().tolist() == [[-1, 2, -1], [-1, 0, 1]]


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("distinct", [False, True])
def test_views_keep_what_is_known(mirrored: bool, distinct: bool) -> None:
    found = by_hand(mirrored=mirrored, distinct=distinct)
    twin, moved, some = found.transposed(), found.to("cpu"), found.select([2, 0])
    for other in (twin, moved, twin.to("cpu"), copy.deepcopy(twin)):
        assert (other.mirrored, other.distinct) == (mirrored, distinct)
        assert other.is_transposed == (other.src is not moved.src and other.num_in == 2)
    assert (some.mirrored, some.distinct, some.is_transposed) == (False, distinct, False)
    assert twin.select([0]).is_transposed
    assert not twin.transposed().is_transposed


def test_a_map_equals_itself_alone() -> None:
    """Maps are keys and values of caches: comparing tensors would be slow, and ambiguous."""
    found, other = by_hand(), by_hand()
    assert found == found  # noqa: PLR0124
    assert found != other
    assert len({found, other}) == 2


def test_chosen_taps_come_in_the_order_given() -> None:
    some = by_hand().select([2, 0, 1])
    assert (some.src.tolist(), some.dst.tolist()) == ([1, 2, 0], [1, 0, 1])
    assert (some.splits.tolist(), some.splits.dtype) == ([0, 1, 1, 3], torch.int64)
    assert (some.num_in, some.num_out, some.geometry) == (3, 2, FEW)


class Plans:
    """What `conv_plan` was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Any, ...]] = []
        monkeypatch.setattr(maps, "conv_plan", self)

    def __call__(self, *given: Any) -> list[torch.Tensor]:
        self.calls.append(given)
        return [torch.tensor(len(self.calls))]


def test_plans_are_made_once_for_each_backend_and_side(monkeypatch: pytest.MonkeyPatch) -> None:
    made, found = Plans(monkeypatch), by_hand(distinct=True)
    twin = found.transposed()
    with _registry.force("reference"):
        forward, back = found.plan(), found.grad_plan()
        assert found.plan() is twin.grad_plan() is forward
        assert found.grad_plan() is twin.plan() is back
    assert made.calls[0] == (found.src, found.dst, found.splits, 3, 2, False, True)
    assert made.calls[1] == (found.dst, found.src, found.splits, 2, 3, False, True)
    monkeypatch.setattr(maps, "backend_for", lambda device: "another")
    assert found.plan() is twin.grad_plan()
    assert found.plan() is not forward
    assert len(made.calls) == 3


def test_a_twin_that_is_asked_first_plans_the_same_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    made, found = Plans(monkeypatch), by_hand(mirrored=True)
    twin = found.transposed()
    twin.plan()
    twin.grad_plan()
    assert made.calls[0] == (found.dst, found.src, found.splits, 2, 3, True, False)
    assert made.calls[1] == (found.src, found.dst, found.splits, 3, 2, True, False)


def test_plans_stay_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    made, found = Plans(monkeypatch), by_hand()
    found.plan()
    assert "_plans" not in repr(found)
    assert "distinct=False" in repr(found)
    for other in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), found.to("cpu")):
        other.plan()
    assert len(made.calls) == 4


def test_moves_wait_unless_asked_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    found, seen, move = by_hand(), [], torch.Tensor.to

    def spy(self: torch.Tensor, device: str, non_blocking: bool = False) -> torch.Tensor:
        seen.append(non_blocking)
        return move(self, device, non_blocking=non_blocking)

    monkeypatch.setattr(torch.Tensor, "to", spy)
    found.to("cpu")
    found.to("cpu", non_blocking=True)
    assert seen == [False] * 4 + [True] * 4


# ------------------------------------------------------------------------- sets of coordinates


def test_maps_say_what_is_known_of_their_rows() -> None:
    distinct, repeated = line(0, 1, 2, 5), line(3, 1, 3)
    assert (distinct.known_distinct(), repeated.known_distinct()) == (False, False)
    unknown, (down, coarse) = distinct.given(repeated, FEW), distinct.footprint(FEW, None)
    for found in (unknown, down):
        assert (found.mirrored, found.distinct) == (False, False)
    assert coarse.known_distinct()
    for sites, is_distinct in ((distinct, True), (repeated, False)):
        found = sites.submanifold((3,), (1,))
        assert (found.mirrored, found.distinct) == (is_distinct, is_distinct)
        assert sites.known_distinct() == is_distinct
        same = sites.identity()
        assert (same.mirrored, same.distinct) == (True, True)
        each = sites.pointwise(torch.zeros(len(sites), dtype=torch.int64), 2)
        assert (each.mirrored, each.distinct) == (False, True)
    wide = Geometry((3,), (1,), (1,), (1,))
    for source, target in itertools.product((coarse, distinct, repeated), repeat=2):
        expected = repeated not in (source, target)
        assert source.given(target, wide).distinct == expected
        assert source.footprint(wide, None)[0].distinct == (source is not repeated)
        assert not source.given(target, wide).mirrored


def test_edits_forget_that_rows_were_distinct() -> None:
    sites = line(0, 1, 2)
    assert sites.first_duplicate() is None
    assert sites.known_distinct()
    table = sites.table()
    assert sites.table() is table
    sites.indices[2, 1] = 1
    assert not sites.is_unchanged()
    assert not sites.known_distinct()
    assert sites.first_duplicate() == 2
    assert sites.table() is not table
    assert sites.is_unchanged()
    trusted = line(0, 1)
    trusted.trust_distinct()
    assert trusted.known_distinct()


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_rows_that_meet_themselves(ndim: int) -> None:
    indices = coords_of("interleaved", ndim)
    indices[1] = indices[0]
    sites = Coordinates(indices, None, 3)
    found = sites.identity()
    assert sites.identity() is found
    assert (found.src.tolist(), found.splits.tolist()) == ([*range(len(sites))], [0, len(sites)])
    assert found.dst.tolist() == found.src.tolist()
    taps = torch.full((len(sites),), 2)
    taps[-2:] = 1
    each = sites.pointwise(taps, 3)
    rows = len(sites)
    assert each.splits.tolist() == [0, 0, 2, rows]
    assert each.dst.tolist() == each.src.tolist() == [rows - 2, rows - 1, *range(rows - 2)]
    for made in (found, each):
        assert made.geometry == Geometry((1,) * ndim, (1,) * ndim, (0,) * ndim, (1,) * ndim)
        assert made.in_indices is made.out_indices is indices
    with pytest.raises(ValueError, match=rf"taps must be of {rows} rows as indices has, got 2 ro"):
        sites.pointwise(taps[:2], 3)


def test_repeated_rows_are_refused_by_their_numbers() -> None:
    message = r"indices must be distinct, got \[0, 3\] in rows 1 and 3; merge them with sparse3d.co"
    with pytest.raises(ValueError, match=message):
        line(7, 3, 5, 3, 7).check()
    with pytest.raises(ValueError, match=r"got \[0, 3\] in rows 2 and 3"):
        line(7, 1, 3, 3).check()
    with pytest.raises(ValueError, match=r"got \[1, 3\] in rows 1 and 2"):
        Coordinates(torch.tensor([[0, 3], [1, 3], [1, 3]], dtype=torch.int32), None, 2).check()
    line(7, 3, 5).check()
    with pytest.raises(ValueError, match=r"column 1 .*\[0, 5\), got 7"):
        Coordinates(line(7, 3, 3).indices, [5], 1).check()
    with pytest.raises(ValueError, match="batch id"):
        Coordinates(torch.tensor([[1, 3]], dtype=torch.int32), [5], 1).check()


def test_each_geometry_rule_and_side_has_a_map_of_its_own() -> None:
    sites, base = line(0, 1, 2, 5, 9, batch=2), Geometry((3,), (2,), (1,), (1,))
    others = [
        replace(base, kernel_size=(5,)),
        replace(base, stride=(3,)),
        replace(base, padding=(0,)),
        replace(base, dilation=(2,)),
    ]
    for geometry in (base, *others):
        for transposed in (False, True):
            found, made = sites.footprint(geometry, None, transposed=transposed)
            again = sites.footprint(geometry, None, transposed=transposed)
            assert again[0] is found
            assert again[1] is made
            rule = oracle.generative_map if transposed else oracle.footprint_map
            numbers = geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation
            expected = rule(sites.indices.numpy(), *numbers, None)
            assert_same(found.src, expected.src)
            assert_same(found.dst, expected.dst)
            assert found.out_indices is made.indices
            assert (made.batch_size, made.spatial_shape) == (2, None)
    assert sites.submanifold((3,), (1,)) is sites.submanifold([3], [1])
    assert len({id(sites.submanifold((k,), (d,))) for k in (1, 3) for d in (1, 2)}) == 4
    assert sites.floor(Geometry((2,), (2,), (0,), (1,)), None)[1].indices[:, 1].tolist() == [
        *(0, 1, 2, 4)
    ]


@pytest.mark.parametrize("rule", ["footprint", "floor"])
def test_grids_of_one_geometry_have_maps_of_their_own(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    geometry = Geometry((2,), (2,), (0,), (1,))
    sites = line(0, 1, 2, 5, 9)
    make = getattr(sites, rule)
    shapes: list[list[int] | None] = [[5], [2], None, [3]]
    made = [make(geometry, shape) for shape in shapes]
    for shape, (found, target) in zip(shapes, made, strict=True):
        assert target.spatial_shape == (None if shape is None else tuple(shape))
        assert (make(geometry, shape)[0], make(geometry, shape)[1]) == (found, target)
        if rule == "footprint":
            limit = 5 if shape is None else shape[0]
            assert target.indices[:, 1].tolist() == [q for q in (0, 1, 2, 4) if q < limit]
    # Compiled code finds each again; a set that knows one grid alone is not asked for it.
    one = line(0, 1, 2, 5, 9)
    single = getattr(one, rule)(geometry, [2])
    two = getattr(line(0, 1, 2, 5, 9), rule)
    pair = [two(geometry, shape) for shape in shapes[:2]]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    for shape, (found, target) in zip(shapes, made, strict=True):
        assert make(geometry, shape) == (found, target)
    assert getattr(one, rule)(geometry, [5]) == single
    assert [two(geometry, shape) for shape in shapes[:2]] == pair


def test_a_map_is_made_anew_where_its_sites_were_edited() -> None:
    sites = line(0, 1, 2, 5)
    found, made = sites.footprint(FEW, None)
    made.indices[0, 1] = 40
    again, fresh = sites.footprint(FEW, None)
    assert again is not found
    assert fresh.indices[0, 1] == 0
    sites.indices[0, 1] = 80
    assert sites.footprint(FEW, None)[1].indices[:, 1].tolist() == [40, 1, 0, 3, 2]
    same = sites.identity()
    sites.indices[0, 1] = 82
    assert sites.identity() is not same


def test_maps_onto_given_sites_are_kept_for_the_same_tensor() -> None:
    sites, target = line(0, 1, 2, 5), line(0, 1, 7)
    found = sites.given(target, FEW)
    assert sites.given(target, FEW) is found
    assert sites.given(Coordinates(target.indices, None, 1), FEW) is found
    assert sites.given(Coordinates(target.indices.clone(), None, 1), FEW) is not found
    assert sites.given(target, replace(FEW, padding=(0,))) is not found
    target.indices[2, 1] = 2
    again = sites.given(target, FEW)
    assert again is not found
    expected = oracle.given_map(
        sites.indices.numpy(), target.indices.numpy(), (3,), (2,), (1,), (1,)
    )
    assert_same(again.src, expected.src)
    assert_same(again.dst, expected.dst)


def test_sides_are_named() -> None:
    """A flag among positions would be read as taps or a grid."""
    sites = line(0, 1)
    with pytest.raises(TypeError, match="positional"):
        sites.reached(FEW, None, True)  # type: ignore[misc]
    with pytest.raises(TypeError, match="positional"):
        sites.footprint(FEW, None, True)  # type: ignore[misc]
    assert sites.reached(geometry=FEW, taps=None)[0] is sites.footprint(FEW, None)[0]


NO_VALUES = r"indices must be a tensor with values, got one on meta"


def test_maps_are_made_of_values_only() -> None:
    for make in (
        lambda sites: sites.table(),
        lambda sites: sites.identity(),
        lambda sites: sites.submanifold((3,), (1,)),
        lambda sites: sites.footprint(FEW, None),
        lambda sites: sites.floor(FEW, None),
        lambda sites: sites.given(line(0, 1), FEW),
        lambda sites: sites.first_duplicate(),
    ):
        with pytest.raises(ValueError, match=NO_VALUES):
            make(Coordinates(line(0, 1).indices.to("meta"), None, 1))


def test_maps_that_moved_along_need_no_values() -> None:
    here, moved = line(0, 1, 2), Coordinates(line(0, 1, 2).indices.to("meta"), None, 1)
    moved._maps["identity"] = here.identity().to("meta")
    assert moved.identity() is moved._maps["identity"]
    moved._maps.clear()
    moved._tables[_registry.backend_for(moved.indices.device)] = here.table().to("meta")
    assert moved.table().device.type == "meta"


def test_sets_travel() -> None:
    sites = Coordinates(line(0, 1, 4).indices, [7], 3)
    sites.submanifold((3,), (1,))
    for other in (copy.deepcopy(sites), pickle.loads(pickle.dumps(sites))):
        assert_same(other.indices, sites.indices)
        assert (other.spatial_shape, other.batch_size, len(other)) == ((7,), 3, 3)
        other.indices[0, 1] = 6
        assert sites.indices[0, 1] == 0
        assert sites.is_unchanged()


# ------------------------------------------------------------------------------ inference mode


def test_maps_outlive_inference_mode() -> None:
    sites, target = line(0, 1, 2, 5), line(0, 1)
    assert isinstance(maps.lasting(), nullcontext)
    with torch.inference_mode():
        made = [
            sites.identity(),
            sites.submanifold((3,), (1,)),
            sites.footprint(FEW, None)[0],
            sites.given(target, FEW),
        ]
        tensors = [t for found in made for t in (found.src, found.dst, found.splits)]
        tensors += [sites.table(), sites.footprint(FEW, None)[1].indices]
        assert not any(tensor.is_inference() for tensor in tensors)
        with maps.lasting():
            assert not torch.is_inference_mode_enabled()
        assert torch.is_inference_mode_enabled()


def test_compiled_code_does_not_leave_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.inference_mode():
        rows = torch.zeros(2, 2, dtype=torch.int32)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert isinstance(maps.lasting(), nullcontext)
        assert maps.with_edit_count(rows) is rows


def test_inference_tensors_are_copied_where_edits_must_be_noticed() -> None:
    plain = line(0, 1).indices
    assert maps.with_edit_count(plain) is plain
    before = maps.edit_count(plain)
    plain[0, 1] = 9
    assert maps.edit_count(plain) > before
    with torch.inference_mode():
        rows = plain.clone()
        copied = maps.with_edit_count(rows)
        assert maps.edit_count(rows) == maps.edit_count(rows + 1)
    assert not copied.is_inference()
    assert copied is not rows
    assert torch.equal(copied, rows)
    assert Coordinates(rows, None, 1).submanifold((3,), (1,)).src.tolist() == [0, 1]
