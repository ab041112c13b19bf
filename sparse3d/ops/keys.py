"""Integer keys of coordinate rows, and look-ups by key.

    FNV-1:  h = (h * p) ^ c        FNV-1a:  h = (h ^ c) * p        ravel:  h = h * extent + c

over the columns c of a row, from h = 14695981039346656037 (ravel: 0) with p = 1099511628211, modulo
2^64. Rows of one hash need not be equal; rows of one ravelled key are, while the bounding box has
fewer than 2^64 cells. The engine's own tables need no keys (`ops.coordinates`): these are for code
that keeps its sites by number, as torchsparse's and MinkowskiEngine's does.

*Shapes.* rows [..., D] of integers, keys [N]. *Dtypes.* Keys are int64 with the bits of the
unsigned number. *Duplicates.* Of equal keys the lowest row answers. *Empty.* No rows give no keys;
among no keys nothing is found. *Gradient.* None. *Determinism.* Exact integers, equal everywhere.

Example:
    >>> import torch
    >>> from sparse3d.ops.keys import find_keys, fnv_hash
    >>> sites = torch.tensor([[0, 4, 1], [0, 7, 2]], dtype=torch.int32)
    >>> wanted = torch.tensor([[0, 7, 2], [1, 7, 2]], dtype=torch.int32)
    >>> find_keys(fnv_hash(sites), fnv_hash(wanted)).tolist()
    [1, -1]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _check
from .coordinates import build_table, lookup

__all__ = ["cell_numbers", "find_keys", "fnv_hash", "key_rows", "ravel_keys"]

_OFFSET, _PRIME = 14695981039346656037 - 2**64, 1099511628211
_ORDERS = ("FNV-1", "FNV-1a")
_WIDTHS = (torch.int32, torch.int64)


def fnv_hash(rows: torch.Tensor, order: str = "FNV-1a", bits: int = 64) -> torch.Tensor:
    """Fowler-Noll-Vo hash of each row.

    Args:
        rows: int32 or int64 [..., D]; a column counts as the unsigned number of its own width.
        order: "FNV-1" or "FNV-1a".
        bits: of the result, 1 to 64; what lies above is folded in by exclusive or.

    Returns:
        int64 [...].

    Raises:
        TypeError: if `rows` is of another dtype.
        ValueError: if order or bits are others.
    """
    _check.tensor("rows", rows)
    if rows.dtype not in _WIDTHS:
        _check.fail_type("rows", "int32 or int64", rows.dtype)
    if order not in _ORDERS:
        _check.fail("order", f"one of {_ORDERS}", repr(order))
    if not 1 <= bits <= 64:
        _check.fail("bits", "1 to 64", bits)
    keys = torch.full(rows.shape[:-1], _OFFSET, dtype=torch.int64, device=rows.device)
    for column in rows.long().unbind(-1):
        value = column & 0xFFFFFFFF if rows.dtype == torch.int32 else column
        keys = (keys ^ value) * _PRIME if order == "FNV-1a" else (keys * _PRIME) ^ value
    if bits == 64:
        return keys
    mask = (1 << bits) - 1
    above = (keys >> bits) & ((1 << (64 - bits)) - 1)
    return (above ^ keys) & mask


def ravel_keys(rows: torch.Tensor) -> torch.Tensor:
    """Row-major cell number of each row in the bounding box of all.

    Args:
        rows: [N, D]; fractions are dropped after the lower bound was taken off.

    Returns:
        int64 [N], the first column counting most.
    """
    _check.tensor("rows", rows, 2)
    if len(rows) == 0:
        return torch.zeros(0, dtype=torch.int64, device=rows.device)
    wide = rows if rows.is_floating_point() else rows.long()
    moved = (wide - wide.amin(0)).long()
    keys = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    for column, top in zip(moved.unbind(1), moved.amax(0), strict=True):
        keys = keys * (top + 1) + column
    return keys


def cell_numbers(rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Row-major number of each row's cell in a grid that starts at 0.

    Args:
        rows: integers [N, D]; trusted to lie in the grid.
        shape: D sizes; the first is not read.

    Returns:
        [N], of the rows' dtype.

    Raises:
        ValueError: if `shape` has not D entries.
    """
    if len(shape) != _check.tensor("rows", rows, 2).shape[1]:
        _check.fail("shape", f"of {rows.shape[1]} entries", list(shape))
    number = rows[:, 0]
    for column, size in zip(rows.unbind(1)[1:], shape[1:], strict=True):
        number = number * size + column
    return number


def key_rows(keys: torch.Tensor) -> torch.Tensor:
    """Keys as coordinate rows, for `build_table` and `lookup`.

    Args:
        keys: int32 or int64 [N].

    Returns:
        int32 [N, 2] or [N, 3]: batch 0, then the key's 32-bit halves.

    Raises:
        TypeError: if `keys` is of another dtype.
    """
    _check.tensor("keys", keys, 1)
    if keys.dtype not in _WIDTHS:
        _check.fail_type("keys", "int32 or int64", keys.dtype)
    halves = keys.contiguous().view(torch.int32).reshape(len(keys), keys.dtype.itemsize // 4)
    return torch.cat([halves.new_zeros((len(keys), 1)), halves], 1)


def find_keys(
    keys: torch.Tensor,
    queries: torch.Tensor,
    numbers: torch.Tensor | None = None,
    *,
    base: int = 0,
) -> torch.Tensor:
    """Place of each query among the keys.

    Args:
        keys: int32 or int64 [N].
        queries: of the same dtype, of any shape.
        numbers: integers [N] to give instead of places.
        base: of places and numbers; 1 counts from 1, and 0 says that there is none.

    Returns:
        int64 of the queries' shape, `base - 1` where a query is no key; of equal keys the lowest
        row.

    Raises:
        TypeError: if dtypes differ.
        ValueError: if there are not N numbers.
    """
    if queries.dtype != keys.dtype:
        _check.fail_type("queries", f"{keys.dtype} as keys is", queries.dtype)
    rows = key_rows(keys)
    found = lookup(rows, build_table(rows), key_rows(queries.reshape(-1)))
    places = found.long().reshape(queries.shape)
    if numbers is not None:
        _check.same_rows("numbers", len(numbers), "keys", len(keys))
        given = torch.cat([numbers.long(), numbers.new_full((1,), -1, dtype=torch.int64)])
        places = given[places]  # -1 is the last
    return places + base if base else places
