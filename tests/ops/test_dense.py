"""Sparse rows to a dense grid and back, against the oracle."""

from __future__ import annotations

import oracle
import pytest
import torch
from contract.engine import coords_of, on, random
from tolerance import DTYPES, assert_same

from sparse3d._cases.clouds import BATCH_SIZE, GRID, cloud
from sparse3d.ops import dense as ops

DENSE = (ops.dense_scatter, ops.dense_gather)
CLOUDS = ["empty", "one", "batches", "interleaved", "duplicates"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CLOUDS)
def test_there_and_back(name: str, ndim: int, dtype: torch.dtype, backend: str) -> None:
    coords, grid = coords_of(name, ndim), list(GRID[ndim])
    features = random((len(coords), 3), dtype)
    with on(backend, *DENSE):
        dense = ops.dense_scatter(features, coords, BATCH_SIZE, grid)
        back = ops.dense_gather(dense, coords)
    expected = oracle.to_dense(features.double().numpy(), cloud(name, ndim), BATCH_SIZE, grid)
    assert dense.dtype == dtype
    assert_same(dense, expected)
    assert_same(back, oracle.from_dense(expected, cloud(name, ndim)))


def test_derivatives(backend: str) -> None:
    coords, grid = coords_of("interleaved", 1), list(GRID[1])
    x = random((len(coords), 2), torch.float64).requires_grad_()
    full = random((BATCH_SIZE, *grid, 2), torch.float64).requires_grad_()
    with on(backend, *DENSE):
        scatter = lambda v: ops.dense_scatter(v, coords, BATCH_SIZE, grid)  # noqa: E731
        gather = lambda v: ops.dense_gather(v, coords)  # noqa: E731
        assert torch.autograd.gradcheck(scatter, (x,))
        assert torch.autograd.gradcheck(gather, (full,))
        assert torch.autograd.gradgradcheck(scatter, (x,))


def test_of_duplicates_the_lowest_row_shows_and_alone_takes_the_gradient(backend: str) -> None:
    coords = torch.tensor([[0, 1], [0, 0], [0, 1]], dtype=torch.int32)
    x = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    with on(backend, *DENSE):
        dense = ops.to_dense(x, coords, [3], 1)
        torch.autograd.backward(dense.sum())
    assert dense.flatten().tolist() == [2.0, 1.0, 0.0]
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([0, 3, 10, 2], r"indices column 2 \(axis 1\) must be in \[0, 10\), got 10; enlarge"),
        ([0, -1, 0, 0], r"indices column 1 \(axis 0\) must be in \[0, 10\), got -1"),
        ([-1, 0, 0, 0], r"indices column 0 \(batch id\) must be in \[0, 2\), got -1"),
        (
            [2, 0, 0, 0],
            r"indices column 0 \(batch id\) must be in \[0, 2\), got 2; raise batch_size",
        ),
    ],
)
def test_rows_outside_the_grid(row: list[int], message: str) -> None:
    coords = torch.tensor([[0, 0, 0, 0], row], dtype=torch.int32)
    with pytest.raises(ValueError, match=message):
        ops.to_dense(torch.zeros(2, 1), coords, [10, 10, 10], 2)
    with pytest.raises(ValueError, match=message):
        ops.from_dense(torch.zeros(2, 10, 10, 10, 1), coords)


def test_bad_arguments() -> None:
    coords = coords_of("one", 3)
    with pytest.raises(ValueError, match="spatial_shape must be of 3 entries"):
        ops.to_dense(torch.zeros(1, 2), coords, [10, 10], 1)
    with pytest.raises(ValueError, match="features must be of 1 rows as coords has, got 2 rows"):
        ops.to_dense(torch.zeros(2, 2), coords, [10, 10, 10], 1)


def test_a_grid_beyond_what_memory_can_address() -> None:
    features, coords = torch.ones(1, 8), torch.zeros(1, 4, dtype=torch.int32)
    with pytest.raises(ValueError, match="spatial_shape must be of a grid that memory can address"):
        ops.to_dense(features, coords, [2**21] * 3, 1)
