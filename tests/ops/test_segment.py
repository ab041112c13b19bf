"""Segment reductions against the oracle."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch
from contract.engine import on, random
from tolerance import DTYPES, GRADIENT, assert_close, assert_same

from sparse3d.ops import segment as ops

SEGMENTS = (ops.segment_sum, ops.segment_max)

SIZES = [(0, 0), (0, 4), (1, 1), (50, 7), (700, 1), (1500, 3)]


def _ids(rows: int, num: int) -> torch.Tensor:
    """Ids in no order; the last segment of several stays empty."""
    high = max(num - 1, 1)
    return torch.from_numpy(np.random.default_rng(rows).integers(0, high, rows))


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "num"), SIZES)
def test_sum_and_max(rows: int, num: int, dtype: torch.dtype, backend: str) -> None:
    values, ids = random((rows, 4), dtype), _ids(rows, num)
    with on(backend, *SEGMENTS):
        total = ops.segment_sum(values, ids, num)
        best, arg = ops.segment_max(values, ids, num)
    x = values.double().numpy()
    # float32 sums of up to 1500 numbers of size one: relative to the sum of their sizes.
    scale = max(1.0, float(oracle.segment_sum(abs(x), ids.numpy(), num).max(initial=1.0)))
    assert total.dtype == dtype
    assert_close(total / scale, oracle.segment_sum(x, ids.numpy(), num) / scale, dtype)
    expected, where = oracle.segment_max(x, ids.numpy(), num)
    assert_same(best, expected)
    assert_same(arg, where)
    assert arg.dtype == torch.int64


def test_ties_nan_and_infinities(backend: str) -> None:
    inf, nan = float("inf"), float("nan")
    values = torch.tensor([[1, nan, -inf], [1, 2, -inf], [0, nan, -inf], [3, 1, inf]])
    ids = torch.tensor([2, 2, 2, 0])
    with on(backend, ops.segment_max):
        best, arg = ops.segment_max(values, ids, 4)
    assert arg.tolist() == [[3, 3, 3], [-1] * 3, [0, 0, 0], [-1] * 3]
    assert best[2, 0] == 1
    assert best[2, 1].isnan()
    assert best[2, 2] == -inf
    assert not best[1].any()


def test_derivatives(backend: str) -> None:
    x, ids = random((9, 2), torch.float64).requires_grad_(), _ids(9, 4)
    with on(backend, *SEGMENTS):
        for call in (
            lambda v: ops.segment_sum(v, ids, 4),
            lambda v: ops.segment_max(v, ids, 4)[0],
            lambda v: ops.reduce_segments(v, ids, 4, "mean"),
        ):
            assert torch.autograd.gradcheck(call, (x,))
            assert torch.autograd.gradgradcheck(call, (x,))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_public_function_takes_views(dtype: torch.dtype, backend: str) -> None:
    values = random((60, 8), dtype)[:, 1::2].requires_grad_()
    ids = _ids(120, 5)[::2]
    x = values.detach().double().numpy()
    with on(backend, *SEGMENTS):
        out = {r: ops.reduce_segments(values, ids, 5, r) for r in ("sum", "mean", "max")}
        (back,) = torch.autograd.grad(out["mean"].sum(), values)
    assert_close(out["sum"], oracle.segment_sum(x, ids.numpy(), 5), dtype)
    assert_close(out["mean"], oracle.segment_mean(x, ids.numpy(), 5), dtype)
    assert_close(out["max"], oracle.segment_max(x, ids.numpy(), 5)[0], dtype)
    counts = np.bincount(ids.numpy(), minlength=5)[ids.numpy()]
    assert_close(back, np.repeat(1 / counts[:, None], 4, 1), dtype, GRADIENT)


def test_bad_arguments() -> None:
    values, ids = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"reduce must be one of .* got 'min'"):
        ops.reduce_segments(values, ids, 1, "min")
    with pytest.raises(ValueError, match="ids must be of 3 rows as values has, got 2 rows"):
        ops.reduce_segments(values, ids[:2], 1)
    with pytest.raises(TypeError, match=r"ids must be int64, got torch\.int32"):
        ops.reduce_segments(values, ids.int(), 1)
    with pytest.raises(TypeError, match="values must be float32"):
        ops.reduce_segments(values.int(), ids, 1)


def test_counts() -> None:
    ids = torch.tensor([[2, -1, 0], [2, 5, -7]])
    assert ops.count_segments(ids, 4).tolist() == [1, 0, 2, 0]
    assert ops.count_segments(ids.int(), 6).tolist() == [1, 0, 2, 0, 0, 1]
    assert ops.count_segments(ids[:0], 2).tolist() == [0, 0]
    assert ops.count_segments(ids, 0).tolist() == []
    with pytest.raises(TypeError, match=r"ids must be integers, got torch.float32"):
        ops.count_segments(ids.float(), 2)
    with pytest.raises(ValueError, match="num must be >= 0, got -1"):
        ops.count_segments(ids, -1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_labels_that_agree(dtype: torch.dtype) -> None:
    labels = torch.tensor([4, 4, 9, 8, 9, 7], dtype=dtype)
    ids = torch.tensor([0, 0, 3, 1, 1, 3])
    assert ops.agreed_labels(labels, ids, 5, 99).tolist() == [4, 99, 99, 99, 99]
    assert ops.agreed_labels(labels[:3], ids[:3], 4, 99).tolist() == [4, 99, 99, 9]
    assert ops.agreed_labels(labels, ids, 5, 99).dtype == dtype
    with pytest.raises(TypeError, match="labels must be integers"):
        ops.agreed_labels(labels.float(), ids, 5, 99)
    with pytest.raises(ValueError, match="ids must be of 6 rows as labels has, got 5 rows"):
        ops.agreed_labels(labels, ids[:5], 5, 99)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_means_by_stated_counts(dtype: torch.dtype) -> None:
    values, ids = random((9, 4), dtype), torch.tensor([2, 0, -1, 2, 2, 0, 3, -1, 2])
    counts = torch.tensor([2, 0, 4, 5])
    values.requires_grad_()
    found = ops.means_by_counts(values, ids, counts)
    for segment, count in enumerate([2, 1, 4, 5]):
        wanted = values.detach().double()[ids == segment].sum(0) / count
        assert_close(found[segment].detach(), wanted.to(dtype), dtype)
    (grad,) = torch.autograd.grad(found.double().sum(), values)
    shares = [0.25, 0.5, 0, 0.25, 0.25, 0.5, 0.2, 0, 0.25]
    assert_close(grad[:, 0], torch.tensor(shares, dtype=torch.float64).to(dtype), dtype)
    with pytest.raises(ValueError, match="ids must be of 9 rows as values has, got 8 rows"):
        ops.means_by_counts(values, ids[:8], counts)


def test_products_with_listed_entries() -> None:
    rows, cols = torch.tensor([0, 2, 0, 2, 2]), torch.tensor([1, 1, 0, 1, 3])
    values = torch.rand(5, dtype=torch.float64, requires_grad=True)
    dense = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    matrix = torch.zeros(3, 4, dtype=torch.float64)
    for row, col, value in zip(rows, cols, values.tolist(), strict=True):
        matrix[row, col] += value
    found = ops.sparse_product(rows, cols, values, 3, dense)
    torch.testing.assert_close(found, matrix @ dense.detach())
    assert torch.autograd.gradcheck(
        lambda v, d: ops.sparse_product(rows, cols, v, 3, d), (values, dense)
    )


def test_first_rows() -> None:
    ids = torch.tensor([3, 1, 3, 1, 0])
    assert ops.first_of_segments(ids, 5).tolist() == [4, 1, -1, 0, -1]
    assert ops.first_of_segments(ids[:0], 2).tolist() == [-1, -1]


def test_entries_of_one_row_and_channel_are_added() -> None:
    values, ids = torch.arange(8.0).reshape(4, 2), torch.tensor([[0, 2], [0, -1], [2, 2], [-1, 0]])
    found = ops.sum_by_channel(values, ids, 4)
    assert found.tolist() == [[0.0 + 2, 7], [0, 0], [4, 1.0 + 5], [0, 0]]
    with pytest.raises(ValueError, match=r"ids must be of shape \[4, 2\] as values is, got \[4\]"):
        ops.sum_by_channel(values, ids[:, 0], 4)


@pytest.mark.parametrize("groups", [None, 2])
def test_standardized_rows_have_weight_and_bias(groups: int | None) -> None:
    values, ids = random((7, 4), torch.float32), torch.tensor([0, 1, 0, 1, 1, 0, 0])
    weight, bias = torch.tensor([[1.0, 2, 3, 4]]), torch.tensor([0.5, 0, -1, 2])
    plain = ops.standardize_segments(values, ids, 2, 1e-5, groups)
    found = ops.standardize_segments(values, ids, 2, 1e-5, groups, weight, bias)
    assert_close(found, plain * weight + bias, torch.float32)
    with pytest.raises(ValueError, match="weight must be 4 numbers, one a channel"):
        ops.standardize_segments(values, ids, 2, 1e-5, groups, bias[:3])
