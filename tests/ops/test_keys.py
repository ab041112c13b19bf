"""Keys against Python integers; look-ups against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparse3d.ops.keys import cell_numbers, find_keys, fnv_hash, key_rows, ravel_keys

WORD = 2**64
RNG = np.random.default_rng(5)


def signed(value: int) -> int:
    return value - WORD if value >= WORD // 2 else value


def python_fnv(row: list[int], width: int, order: str, bits: int) -> int:
    key = 14695981039346656037
    for column in row:
        value = column % 2**width
        if order == "FNV-1a":
            key = (key ^ value) * 1099511628211 % WORD
        else:
            key = (key * 1099511628211 % WORD) ^ value
    return ((key >> bits) ^ (key % 2**bits)) % 2**bits if bits < 64 else key


@pytest.mark.parametrize("order", ["FNV-1", "FNV-1a"])
@pytest.mark.parametrize("bits", [1, 31, 32, 60, 63, 64])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_fnv_is_that_of_python_integers(order: str, bits: int, dtype: torch.dtype) -> None:
    width = 8 * dtype.itemsize
    rows = RNG.integers(-(2 ** (width - 1)), 2 ** (width - 1), (40, 4))
    rows[0], rows[1], rows[2] = 0, -1, [1, 2, 3, 4]
    found = fnv_hash(torch.from_numpy(rows).to(dtype), order, bits)
    wanted = [signed(python_fnv(row, width, order, bits)) for row in rows.tolist()]
    assert found.tolist() == wanted
    stacked = torch.from_numpy(rows.reshape(2, 20, 4)).to(dtype)
    assert fnv_hash(stacked, order, bits).reshape(-1).tolist() == wanted


def test_the_published_hash_of_bytes() -> None:
    """Of "foobar", from the algorithm's own test vectors."""
    letters = torch.tensor([list(b"foobar")])
    assert fnv_hash(letters, "FNV-1a").item() == signed(0x85944171F73967E8)
    assert fnv_hash(letters, "FNV-1").item() == signed(0x340D8765A4DDA9C2)


def test_ravelled_keys_are_cell_numbers() -> None:
    rows = RNG.integers(-7, 9, (200, 3))
    moved = rows - rows.min(0)
    wanted = np.ravel_multi_index(tuple(moved.T), tuple(moved.max(0) + 1))
    assert ravel_keys(torch.from_numpy(rows)).tolist() == wanted.tolist()
    assert ravel_keys(torch.from_numpy(rows).double()).tolist() == wanted.tolist()
    assert ravel_keys(torch.zeros(0, 3)).tolist() == []
    far = torch.tensor([[-(2**31), 0], [2**31 - 1, 1]], dtype=torch.int32)
    assert ravel_keys(far).tolist() == [0, (2**32 - 1) * 2 + 1]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_look_ups_are_those_of_a_dictionary(dtype: torch.dtype) -> None:
    keys = torch.from_numpy(RNG.integers(-30, 30, 80)).to(dtype)
    keys[0], keys[1] = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    place: dict[int, int] = {}
    for row, key in enumerate(keys.tolist()):
        place.setdefault(key, row)
    queries = torch.arange(-40, 40, dtype=dtype).reshape(8, 10)
    wanted = [[place.get(key, -1) for key in row] for row in queries.tolist()]
    assert find_keys(keys, queries).tolist() == wanted
    assert find_keys(keys, keys[:2]).tolist() == [0, 1]
    assert find_keys(keys[:0], queries).unique().tolist() == [-1]


def test_what_is_refused() -> None:
    rows = torch.zeros(2, 3, dtype=torch.int32)
    with pytest.raises(TypeError, match=r"rows must be int32 or int64, got torch\.float32"):
        fnv_hash(rows.float())
    with pytest.raises(ValueError, match=r"order must be one of .*, got 'FNV-2'"):
        fnv_hash(rows, "FNV-2")
    with pytest.raises(ValueError, match="bits must be 1 to 64, got 0"):
        fnv_hash(rows, bits=0)
    with pytest.raises(TypeError, match=r"keys must be int32 or int64, got torch\.float32"):
        key_rows(torch.zeros(3))
    with pytest.raises(TypeError, match=r"queries must be torch\.int64 as keys is"):
        find_keys(torch.zeros(3).long(), torch.zeros(3).int())


def test_numbers_of_keys_and_where_they_start() -> None:
    keys, queries = torch.tensor([7, 5, 7]), torch.tensor([[5, 9], [7, 7]])
    assert find_keys(keys, queries, base=1).tolist() == [[2, 0], [1, 1]]
    numbers = torch.tensor([40, 60, 80], dtype=torch.int32)
    assert find_keys(keys, queries, numbers).tolist() == [[60, -1], [40, 40]]
    assert find_keys(keys, queries, numbers, base=1).tolist() == [[61, 0], [41, 41]]
    assert find_keys(keys[:0], queries, numbers[:0], base=1).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError, match="numbers must be of 3 rows as keys has, got 2 rows"):
        find_keys(keys, queries, numbers[:2])


def test_cell_numbers_are_row_major() -> None:
    shape = (3, 4, 5)
    rows = np.argwhere(np.ones(shape, dtype=bool))
    found = cell_numbers(torch.from_numpy(rows), shape)
    assert found.tolist() == list(range(60))
    with pytest.raises(ValueError, match=r"shape must be of 3 entries, got \[4, 5\]"):
        cell_numbers(torch.from_numpy(rows), shape[1:])
