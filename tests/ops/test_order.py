"""Sorting and counting rows, on every backend, judged by numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparse3d import _registry
from sparse3d.ops.order import (
    count_ids,
    id_counts,
    key_order,
    order_columns,
    order_keys,
    running_sum,
    running_sums,
)

SIZES = (0, 1, 31, 32, 33, 511, 512, 513, 1025, 3000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_order_is_ascending_and_stable(backend: str, size: int, dtype: torch.dtype) -> None:
    """Negative keys, repeats, the ends of the range, and keys that differ in one word only."""
    limit = torch.iinfo(dtype)
    keys = torch.randint(-20, 20, (size,), dtype=dtype)
    if dtype == torch.int64:
        keys = keys * 2**31 + torch.randint(-2, 2, (size,))
    keys[: size // 9] = limit.max
    keys[size // 9 : size // 5] = limit.min
    with _registry.force(backend):
        found = order_keys(keys)
    assert found.dtype == torch.int64
    assert found.tolist() == np.argsort(keys.numpy(), kind="stable").tolist()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 40), (33, 17)])
def test_order_of_each_row_is_ascending_and_stable(backend: str, shape: tuple[int, int]) -> None:
    keys = torch.randint(-5, 5, shape, dtype=torch.int32)
    with _registry.force(backend):
        found = order_columns(keys)
    assert found.shape == shape
    assert found.tolist() == np.argsort(keys.numpy(), axis=1, kind="stable").tolist()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_counts_and_sums(backend: str, size: int, dtype: torch.dtype) -> None:
    ids = torch.randint(0, 17, (size,), dtype=dtype)
    expected = np.bincount(ids.numpy(), minlength=19)
    with _registry.force(backend):
        counts = count_ids(ids, 19)
        assert counts.dtype == torch.int64
        assert counts.tolist() == expected.tolist()
        assert running_sum(counts).tolist() == np.cumsum(expected).tolist()
        assert running_sum(ids).tolist() == np.cumsum(ids.numpy()).tolist()
        assert count_ids(ids[:0], 0).tolist() == []


def test_shapes_of_the_fakes() -> None:
    keys = torch.randint(0, 9, (12,))
    for op, arguments in ((key_order, (keys,)), (id_counts, (keys, 9)), (running_sums, (keys,))):
        torch.library.opcheck(op.overload, arguments)
