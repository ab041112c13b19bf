"""Table, look-up and unique against the oracle."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch
from contract.engine import coords_of, on
from tolerance import assert_same

from sparse3d._cases.clouds import CLOUD_NAMES, cloud
from sparse3d.ops import coordinates as ops

BIG = 2**31 - 1


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_lookup(name: str, ndim: int, backend: str) -> None:
    coords = cloud(name, ndim)
    rng = np.random.default_rng(1)
    strangers = rng.integers(-9, 9, (20, 1 + ndim)).astype(np.int32)
    queries = np.concatenate([coords[::-1], strangers, oracle.shifted(coords, [1] * ndim)])
    with on(backend, ops.coordinate_table, ops.coordinate_lookup):
        ours = torch.from_numpy(coords.copy())
        found = ops.lookup(ours, ops.build_table(ours), torch.from_numpy(queries))
    assert found.dtype == torch.int32
    assert_same(found, oracle.lookup(coords, queries))


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_unique(name: str, ndim: int, backend: str) -> None:
    with on(backend, ops.coordinate_unique):
        first, inverse = ops.unique(coords_of(name, ndim))
    expected = oracle.unique(cloud(name, ndim))
    assert first.dtype == inverse.dtype == torch.int64
    assert_same(first, expected[0], "first")
    assert_same(inverse, expected[1], "inverse")


def test_coordinates_reach_the_whole_range_of_int32(backend: str) -> None:
    corners = [-BIG - 1, -BIG, -1, 0, 1, BIG - 1, BIG]
    rows = np.array([[b, x, y] for b in (0, BIG) for x in corners for y in corners], np.int32)
    mixed = rows[np.random.default_rng(2).permutation(len(rows))]
    mixed = np.concatenate([mixed, mixed[:9]])
    coords = torch.from_numpy(mixed)
    queries = torch.from_numpy(np.concatenate([rows, rows ^ 2]))
    with on(backend, ops.coordinate_table, ops.coordinate_unique):
        found = ops.lookup(coords, ops.build_table(coords), queries)
        first, inverse = ops.unique(coords)
    assert_same(found, oracle.lookup(mixed, queries.numpy()))
    expected = oracle.unique(mixed)
    assert_same(first, expected[0])
    assert_same(inverse, expected[1])


def test_unique_of_many_equal_rows(backend: str) -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 4, (5000, 4)).astype(np.int32)
    with on(backend, ops.coordinate_unique):
        first, inverse = ops.unique(torch.from_numpy(rows))
    expected = oracle.unique(rows)
    assert_same(first, expected[0])
    assert_same(inverse, expected[1])


def test_views_count_as_what_they_show(backend: str) -> None:
    wide = torch.from_numpy(np.repeat(cloud("random", 3), 2, axis=1))
    coords = wide[:, ::2]
    assert not coords.is_contiguous()
    with on(backend, ops.coordinate_table, ops.coordinate_lookup):
        found = ops.lookup(coords, ops.build_table(coords), coords.flip(0)[::2])
        first, _ = ops.unique(coords)
    assert_same(found, np.arange(len(coords))[::-1][::2])
    assert_same(first, np.arange(len(coords)))


@pytest.mark.parametrize(
    ("coords", "error", "message"),
    [
        (torch.zeros(3, 4), TypeError, "coords must be int32, got torch.float32"),
        (torch.zeros(3, 4, dtype=torch.int64), TypeError, "coords must be int32, got torch.int64"),
        (torch.zeros(3, 6, dtype=torch.int32), ValueError, r"shape \[N, 1 \+ D\]"),
        (torch.zeros(3, 1, dtype=torch.int32), ValueError, r"shape \[N, 1 \+ D\]"),
        (torch.zeros(3, dtype=torch.int32), ValueError, "coords must be 2-dimensional"),
        ([[0, 1]], TypeError, "coords must be a torch.Tensor, got list"),
    ],
)
def test_bad_coordinates(coords: object, error: type[Exception], message: str) -> None:
    for call in (ops.build_table, ops.unique):
        with pytest.raises(error, match=message):
            call(coords)  # type: ignore[arg-type]


def test_queries_of_another_dimension() -> None:
    coords = coords_of("random", 3)
    with pytest.raises(ValueError, match="queries must be of 4 columns as coords has, got 3"):
        ops.lookup(coords, ops.build_table(coords), coords_of("random", 2))


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CLOUD_NAMES)
def test_other_orders_of_unique_rows(name: str, ndim: int) -> None:
    coords = cloud(name, ndim)
    rows = [tuple(row) for row in coords.tolist()]
    by_first = list(dict.fromkeys(rows))
    for call, wanted in ((ops.distinct, by_first), (ops.unique_sorted, sorted(by_first))):
        first, inverse = call(torch.from_numpy(coords.copy()))
        assert [rows[row] for row in first.tolist()] == wanted
        assert first.tolist() == [rows.index(row) for row in wanted]
        assert [wanted[place] for place in inverse.tolist()] == rows


def test_cells() -> None:
    coords = torch.tensor([[1, -5, 7, 0], [0, 4, -8, 3]], dtype=torch.int32)
    assert ops.cells_of(coords, [4, 4, 2]).tolist() == [[1, -2, 1, 0], [0, 1, -2, 1]]
    assert ops.cells_of(coords, (1, 1, 1)) is coords
    for bad in ([2, 2], [2, 0, 2]):
        with pytest.raises(ValueError, match="stride must be 3 integers > 0"):
            ops.cells_of(coords, bad)
