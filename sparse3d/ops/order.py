"""Sorting and counting rows: what layouts of rows by sample, tap or voxel are made of.

    order_keys(keys): the positions of the keys in ascending order, equal ones in theirs
    order_columns(keys): the same in each row of a matrix
    count_ids(ids, num): how often each of 0..num-1 occurs
    running_sum(counts): sums of the counts up to and with each

*Shapes.* One axis (two for `order_columns`), int32 or int64; results are int64. *Limits.* On Apple
GPUs rows and sums are below 2^31. *Empty.* Empty results, or zeros. *Gradient.* None. *Why.*
PyTorch's own sort, bincount and cumsum are wrong or slow on some versions of macOS; elsewhere these
are PyTorch's.
"""

from __future__ import annotations

import torch

from .._registry import Op

__all__ = ["count_ids", "order_columns", "order_keys", "running_sum"]


def _order_reference(keys: torch.Tensor) -> torch.Tensor:
    return torch.argsort(keys, stable=True)


def _count_reference(ids: torch.Tensor, num: int) -> torch.Tensor:
    return torch.bincount(ids, minlength=num)


def _sum_reference(counts: torch.Tensor) -> torch.Tensor:
    return counts.cumsum(0, dtype=torch.int64)


def _long_like(keys: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(keys, dtype=torch.int64)


key_order = Op("key_order(Tensor keys) -> Tensor", reference=_order_reference, fake=_long_like)
id_counts = Op(
    "id_counts(Tensor ids, SymInt num) -> Tensor",
    reference=_count_reference,
    fake=lambda ids, num: ids.new_empty(num, dtype=torch.int64),
)
running_sums = Op(
    "running_sums(Tensor counts) -> Tensor", reference=_sum_reference, fake=_long_like
)


def order_keys(keys: torch.Tensor) -> torch.Tensor:
    """Positions [N] that sort the keys [N], stable."""
    if not key_order.has_kernel(keys.device):
        return _order_reference(keys)
    order: torch.Tensor = key_order(keys)
    return order


def order_columns(keys: torch.Tensor) -> torch.Tensor:
    """Positions [R, W] that sort each row of the keys [R, W], stable."""
    if not key_order.has_kernel(keys.device):
        return torch.argsort(keys, dim=1, stable=True)
    rows = torch.arange(keys.shape[0], device=keys.device)[:, None]
    order = order_keys(keys.reshape(-1))
    order = order[order_keys(rows.expand_as(keys).reshape(-1)[order].int())]
    return order.view_as(keys) - rows * keys.shape[1]


def count_ids(ids: torch.Tensor, num: int) -> torch.Tensor:
    """How often each number below `num` occurs; ids [N] are trusted to be in [0, num)."""
    if not id_counts.has_kernel(ids.device):
        return _count_reference(ids, num)
    counts: torch.Tensor = id_counts(ids, num)
    return counts


def running_sum(counts: torch.Tensor) -> torch.Tensor:
    """Sums of the counts [N] up to and with each."""
    if not running_sums.has_kernel(counts.device):
        return _sum_reference(counts)
    sums: torch.Tensor = running_sums(counts)
    return sums
