"""Coordinates that someone chose to do harm: equal hashes, the ends of int32, huge batch ids.

Judged by the oracle, whose tables are Python dictionaries.
"""

import time

import numpy as np
import oracle
import pytest
import torch
from contract.engine import same_bytes
from tolerance import assert_close, assert_same

import sparse3d
import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry
from sparse3d.geometry import Geometry
from sparse3d.ops import coordinates, kernel_map

FACTORS = (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B1)
"""Of cpu/csrc/table.h: the hash is linear in the coordinate before it is mixed."""
LOW, HIGH = -(2**31), 2**31 - 1


def linear(coords):
    """The hash of each row before the mix, as the table computes it."""
    terms = [coords[:, a].astype(np.uint64) * FACTORS[a] for a in range(coords.shape[1])]
    return (sum(terms) & 0xFFFFFFFF).astype(np.uint32)


def colliding(rows, ndim, seed=0, target=0x12345678):
    """Distinct rows with one and the same hash: the last axis is solved for."""
    rng = np.random.default_rng(seed)
    free = rng.integers(-500, 500, (4 * rows, ndim), dtype=np.int64)
    free[:, 0] = rng.integers(0, 3, 4 * rows)
    inverse = pow(FACTORS[ndim], -1, 2**32)
    rest = np.zeros(len(free), np.uint64)
    for axis in range(ndim):
        rest += (free[:, axis] & 0xFFFFFFFF).astype(np.uint64) * FACTORS[axis]
    last = (((target - rest) & 0xFFFFFFFF) * inverse) & 0xFFFFFFFF
    whole = np.concatenate([free, last.astype(np.uint32).view(np.int32)[:, None]], 1)
    distinct = np.unique(whole, axis=0)
    return rng.permutation(distinct)[:rows].astype(np.int32)


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_the_chosen_rows_do_collide(ndim):
    rows = 3 if ndim == 1 else 200  # on one axis the hash and the batch id leave one place
    made = colliding(rows, ndim)
    assert len(np.unique(made, axis=0)) == len(made) == rows
    assert len(set(linear(made.view(np.uint32)).tolist())) == 1


@pytest.mark.parametrize("ndim", [2, 3, 4])
def test_a_table_of_one_hash_answers_rightly(backend, ndim):
    made = colliding(1500, ndim)
    held, absent = torch.from_numpy(made[:1200].copy()), torch.from_numpy(made[1200:].copy())
    with _registry.force(backend):
        table = coordinates.build_table(held)
        own = coordinates.lookup(held, table, held)
        other = coordinates.lookup(held, table, absent)
    assert_same(own, np.arange(1200))
    assert_same(other, np.full(300, -1))


def test_repeated_rows_of_one_hash_are_found_in_order(backend):
    made = colliding(300, 3)
    rows = np.concatenate([made, made[::-1], made[::3]])
    with _registry.force(backend):
        first, inverse = coordinates.unique(torch.from_numpy(rows))
    expected = oracle.unique(rows)
    assert_same(first, expected[0])
    assert_same(inverse, expected[1])


@pytest.mark.usefixtures("cpu_library")
@pytest.mark.parametrize("threads_used", [1, 8])
def test_many_threads_agree_on_a_table_of_one_hash(threads, threads_used):
    threads(threads_used)
    rows = torch.from_numpy(colliding(2500, 3))
    with _registry.force("cpu"):
        again = coordinates.build_table(rows)
        threads(1)
        assert same_bytes(again, coordinates.build_table(rows))


def test_maps_over_neighbours_of_colliding_sites(backend):
    """Blocks around sites of one hash: tap by tap, the queries of all blocks collide as well."""
    middles = colliding(40, 3).astype(np.int64)
    steps = np.array([[0, z, y, x] for z in (0, 1) for y in (0, 1) for x in (0, 1)])
    blocks = (middles[:, None] + steps).reshape(-1, 4)
    inside = (blocks[:, 1:] >= LOW).all(1) & (blocks[:, 1:] <= HIGH).all(1)
    sites = np.unique(blocks[inside].astype(np.int32), axis=0)
    sites = np.random.default_rng(1).permutation(sites)
    coords = torch.from_numpy(sites)
    wide = Geometry((3, 3, 3), (2, 2, 2), (1, 1, 1), (1, 1, 1))
    with _registry.force(backend):
        subm = kernel_map.submanifold(coords, [3] * 3, [1] * 3)
        out, *strided = kernel_map.footprint(coords, wide)
    expected = oracle.submanifold_map(sites, [3] * 3, [1] * 3)
    for ours, theirs in zip(subm, (expected.src, expected.dst, expected.splits), strict=True):
        assert_same(ours, theirs)
    expected = oracle.footprint_map(sites, [3] * 3, [2] * 3, [1] * 3, [1] * 3, None)
    assert_same(out, np.array(expected.out))
    for ours, theirs in zip(strided, (expected.src, expected.dst, expected.splits), strict=True):
        assert_same(ours, theirs)


EDGES = np.array(
    [
        [0, LOW, LOW, LOW], [0, LOW, LOW, LOW + 1], [0, LOW, LOW, HIGH], [0, HIGH, HIGH, HIGH],
        [0, HIGH, HIGH, HIGH - 1], [0, HIGH, LOW, 0], [0, LOW, HIGH, -1], [0, 0, 0, 0],
        [0, -1, -1, -1], [0, -1, 0, 1], [0, HIGH - 1, HIGH, HIGH],
    ],
    np.int32,
)  # fmt: skip


@pytest.mark.parametrize(("size", "dilation"), [(3, 1), (3, 2), (5, 1), (3, 2**30)])
def test_the_ends_of_int32_are_not_neighbours(backend, size, dilation):
    with _registry.force(backend):
        ours = kernel_map.submanifold(torch.from_numpy(EDGES), [size] * 3, [dilation] * 3)
    expected = oracle.submanifold_map(EDGES, [size] * 3, [dilation] * 3)
    for left, right in zip(ours, (expected.src, expected.dst, expected.splits), strict=True):
        assert_same(left, right)


@pytest.mark.parametrize("transposed", [False, True], ids=["footprint", "generative"])
def test_sites_beyond_int32_are_not_created(backend, transposed):
    numbers = ([3] * 3, [2] * 3 if transposed else [1] * 3, [1] * 3, [1] * 3)
    with _registry.force(backend):
        out, *pairs = kernel_map.footprint(
            torch.from_numpy(EDGES), Geometry(*map(tuple, numbers)), transposed=transposed
        )
    rule = oracle.generative_map if transposed else oracle.footprint_map
    found = rule(EDGES, *numbers, None)
    legal = np.array([all(LOW <= c <= HIGH for c in site) for site in found.out])
    place = np.cumsum(legal) - 1
    assert_same(out, np.array(found.out)[legal])
    keep = legal[found.dst]
    assert_same(pairs[0], found.src[keep])
    assert_same(pairs[1], place[found.dst[keep]])


def test_a_network_at_the_ends_of_int32_equals_one_near_zero(backend):
    rng = np.random.default_rng(2)
    cells = np.unique(rng.integers(0, 6, (90, 3)), axis=0)
    near = np.pad(cells, ((0, 0), (1, 0)))
    torch.manual_seed(1)
    net = spnn.SparseSequential(
        spnn.SubMConv3d(3, 5, 3), spnn.SparseConv3d(5, 4, 2, 2, indice_key="d"),
        spnn.SparseInverseConv3d(4, 3, 2, "d"),
    )  # fmt: skip
    features = torch.randn(len(near), 3)
    results = []
    for corner in ([0, 0, 0], [LOW, LOW, LOW], [HIGH - 5, LOW, HIGH - 5], [-4, -2, -6]):
        sites = torch.from_numpy(near + np.array([0, *corner])).int()
        with _registry.force(backend), torch.no_grad():
            results.append(net(SparseConvTensor(features, sites, None, 1)).features)
    # An odd corner shifts the cells of the strided layer; these are even but for HIGH - 5.
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert torch.equal(results[0], results[3])


@pytest.mark.parametrize("top", [2**31 - 2, 2**31 - 1])
def test_batch_ids_up_to_the_end_of_int32(backend, top):
    ids = np.array([top, 0, top, 5, top - 1, 0], np.int64)
    sites = np.stack([ids, [1, 1, 2, 2, 2, 2], [3] * 6, [3, 3, 3, 4, 3, 3]], 1).astype(np.int32)
    x = SparseConvTensor(torch.randn(6, 2), torch.from_numpy(sites), [8, 8, 8], top + 1)
    net = spnn.SparseConv3d(2, 3, 3, 1, 1)
    with _registry.force(backend), torch.no_grad():
        out = net(x)
        first, inverse = coordinates.unique(torch.from_numpy(sites))
    expected = oracle.footprint_map(sites, [3] * 3, [1] * 3, [1] * 3, [1] * 3, [8, 8, 8])
    assert_same(out.indices, np.array(expected.out))
    assert_same(first, oracle.unique(sites)[0])
    assert_same(inverse, oracle.unique(sites)[1])


def test_a_batch_id_beyond_the_batch_is_named():
    sites = torch.tensor([[0, 1, 1, 1], [HIGH, 1, 1, 1]], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"2147483647"):
        SparseConvTensor(torch.zeros(2, 1), sites, [4, 4, 4], HIGH)


def test_negative_positions_need_an_absent_grid():
    sites = torch.tensor([[0, -1, 1, 1]], dtype=torch.int32)
    with pytest.raises(ValueError, match="-1"):
        SparseConvTensor(torch.zeros(1, 1), sites, [4, 4, 4], 1)
    assert len(SparseConvTensor(torch.zeros(1, 1), sites, None, 1)) == 1


@pytest.mark.parametrize("samples", [3000])
def test_a_batch_of_many_small_samples(samples):
    """Each sample by itself gives what it gave in the batch."""
    counts = np.random.default_rng(0).integers(0, 4, samples)
    ids = np.repeat(np.arange(samples), counts)
    place = np.arange(len(ids)) - np.repeat(counts.cumsum() - counts, counts)
    sites = np.stack([ids, place, place // 2, ids % 5], 1).astype(np.int32)
    order = np.random.default_rng(1).permutation(len(sites))
    x = SparseConvTensor(
        torch.randn(len(sites), 2), torch.from_numpy(sites[order]), [4, 4, 5], samples
    )
    net = spnn.SubMConv3d(2, 3, 3)
    with torch.no_grad():
        out = net(x)
        parts = list(sparse3d.decompose(out))
        assert [len(rows) for rows, _ in parts] == counts.tolist()
        for sample in (0, 7, samples - 1):
            own = x.indices[:, 0] == sample
            alone = x.indices[own] * torch.tensor([0, 1, 1, 1], dtype=torch.int32)
            single = net(SparseConvTensor(x.features[own], alone, [4, 4, 5], 1))
            assert_close(parts[sample][0], single.features, torch.float32)
            assert torch.equal(parts[sample][1], x.indices[own])
        pooled = spnn.SparseGlobalMaxPool()(x)
    assert len(pooled if isinstance(pooled, torch.Tensor) else pooled.features) == samples


def test_decompose_of_a_huge_batch_is_lazy():
    sites = torch.tensor([[1, 0, 0, 0], [HIGH - 1, 0, 0, 0]], dtype=torch.int32)
    parts = sparse3d.decompose(SparseConvTensor(torch.eye(2), sites, [1, 1, 1], HIGH))
    assert [len(next(parts)[0]) for _ in range(3)] == [0, 1, 0]


@pytest.mark.nightly
def test_collisions_cost_the_square_of_their_number_and_no_more():
    """SECURITY.md says so: 20,000 rows of one hash are seconds."""
    coords = torch.from_numpy(colliding(20000, 3))
    begin = time.perf_counter()
    table = coordinates.build_table(coords)
    assert int(coordinates.lookup(coords, table, coords[-1:])) == len(coords) - 1
    assert time.perf_counter() - begin < 20
