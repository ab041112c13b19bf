"""`KernelMap` and the coordinate sets that cache it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import oracle
import pytest
import torch
from contract.engine import coords_of, oracle_map, random
from tolerance import assert_close, assert_same

from sparse3d import Coordinates, KernelMap, _registry
from sparse3d._cases.clouds import GEOMETRIES, Case
from sparse3d.geometry import Geometry
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


@pytest.mark.parametrize("transposed", [False, True])
def test_sites_that_some_taps_reach(transposed: bool) -> None:
    indices = coords_of("interleaved", 3)
    sites = Coordinates(indices, None, 3)
    geometry = Geometry((3,) * 3, (2,) * 3, (1,) * 3, (1,) * 3)
    every, all_sites = sites.reached(geometry, transposed=transposed)
    assert every is not None
    assert sites.reached(geometry, range(27), transposed=transposed)[0] is every
    cross = [4, 10, 12, 13, 14, 16, 22]
    pairs, some = sites.reached(geometry, cross, transposed=transposed)
    assert pairs is None
    met = {int(row) for tap in cross for row in every.tap(tap)[1]}
    assert_same(some, all_sites[sorted(met)])
    assert 0 < len(some) < len(all_sites)
