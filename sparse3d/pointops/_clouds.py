"""Where each cloud lies: one small int64 table on the CPU that every search operator takes.

A row a cloud: `(query begin, query end, reference begin, reference end, base)`. Rows of the query
and of the reference tensor are absolute; returned indices are relative to `base`, so that dense
operators (index in the cloud) and flat ones (row of the tensor) share one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sparse3d._check import fail, fail_type, tensor

from ._inputs import count, largest, values_known
from ._inputs import numbers as _numbers


def dense(
    batch: int,
    queries: int,
    references: int,
    query_lengths: torch.Tensor | None = None,
    reference_lengths: torch.Tensor | None = None,
) -> torch.Tensor:
    """Clouds of a padded batch, flattened to rows; returned indices count inside each cloud."""
    cloud = torch.arange(batch, dtype=torch.int64)
    first_query, first_reference = cloud * queries, cloud * references
    return torch.stack(
        [
            first_query,
            first_query + (queries if query_lengths is None else query_lengths),
            first_reference,
            first_reference + (references if reference_lengths is None else reference_lengths),
            first_reference,
        ],
        1,
    )


def flat(query_ptr: torch.Tensor, reference_ptr: torch.Tensor) -> torch.Tensor:
    """Clouds that lie one after the other; returned indices are rows of the reference."""
    bounds = [query_ptr[:-1], query_ptr[1:], reference_ptr[:-1], reference_ptr[1:]]
    return torch.stack([*bounds, torch.zeros_like(query_ptr[:-1])], 1)


def pointer(
    name: str, rows: int, batch: Any, batch_size: int | None, device: torch.device
) -> torch.Tensor:
    """Bounds [B + 1] on the CPU from a sorted batch vector (None: one cloud)."""
    if batch is None:
        clouds = 1 if batch_size is None else count("batch_size", batch_size, 1)
        return torch.tensor([0] + [rows] * clouds)
    ids = tensor(name, batch, 1)
    if ids.dtype not in (torch.int32, torch.int64):
        fail_type(name, "int64 or int32", ids.dtype, "convert with .long()")
    if ids.shape[0] != rows:
        fail(name, f"of {rows} entries, one a point", ids.shape[0])
    if ids.device != device:
        fail(name, f"on {device} as the points are", ids.device, "move it with .to(device)")
    if rows and values_known(ids):
        if bool((ids[1:] < ids[:-1]).any()):
            fail(name, "sorted", "a batch vector that decreases", "sort the points by batch id")
        low, high = int(ids[0]), int(ids[-1])
        if low < 0 or (batch_size is not None and high >= batch_size):
            limit = "batch_size" if batch_size is None else batch_size
            fail(name, f"in [0, {limit})", low if low < 0 else high)
    else:
        high = largest(name, ids, "pass batch_size") if rows and batch_size is None else -1
    clouds = max(high + 1, 1) if batch_size is None else count("batch_size", batch_size, 1)
    steps = torch.arange(clouds + 1, dtype=ids.dtype, device=device)
    return torch.searchsorted(ids.contiguous(), steps).to("cpu", torch.int64)


def whole_numbers(
    name: str, value: torch.Tensor | Sequence[int], device: torch.device
) -> torch.Tensor:
    """A caller's vector of whole numbers, which lies on `device` or on the CPU, as int64 there."""
    numbers = _numbers(name, value)
    if numbers.ndim != 1:
        fail(name, "1-dimensional", f"shape {list(numbers.shape)}")
    if numbers.numel() and numbers.dtype not in (torch.int32, torch.int64):
        fail_type(name, "int64 or int32", numbers.dtype, "convert with .long()")
    if numbers.device.type != "cpu" and numbers.device != device:
        fail(name, f"on {device} as the points are", numbers.device, "move it with .to(device)")
    return numbers.to("cpu", torch.int64)


def checked_pointer(
    name: str,
    value: torch.Tensor | Sequence[int],
    rows: int,
    device: torch.device,
    *,
    inclusive: bool = False,
    of: str = "points",
    least: int = 1,
) -> torch.Tensor:
    """Bounds [B + 1] on the CPU from a caller's pointer (`inclusive`: offsets without the zero).

    The pointer lies on `device` or on the CPU, holds whole numbers and at least `least` ranges.
    """
    bounds = whole_numbers(name, value, device)
    if inclusive:
        bounds = torch.cat([bounds.new_zeros(1), bounds])
    ends = (bounds.numel() > least) and (int(bounds[0]), int(bounds[-1])) == (0, rows)
    if not ends or bool((bounds[1:] < bounds[:-1]).any()):
        start = "ascending and end" if inclusive else "ascending, start at 0 and end"
        fail(name, f"{start} at {rows}, the number of {of}", bounds.tolist()[:8])
    return bounds


def ids_of_pointer(
    value: torch.Tensor | Sequence[int], batch: Any, rows: int, device: torch.device
) -> torch.Tensor:
    """The batch vector that a caller's `ptr` stands for, which is given in place of `batch`."""
    if batch is not None:
        fail("ptr", "None where batch is given", "both", "drop one of them")
    bounds = checked_pointer("ptr", value, rows, device)
    return torch.repeat_interleave(torch.arange(bounds.numel() - 1), bounds.diff()).to(device)


def absolute(indices: torch.Tensor, clouds: torch.Tensor) -> torch.Tensor:
    """Rows of the reference tensor from indices relative to `base`; -1 stays."""
    if not bool(clouds[:, 4].any()):
        return indices
    base = torch.zeros(indices.shape[0], dtype=torch.int64)
    for begin, end, _, _, offset in clouds.tolist():
        base[begin:end] = offset
    return torch.where(indices >= 0, indices + base.to(indices.device)[:, None], indices)
