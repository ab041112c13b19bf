"""Sorting and counting rows: what layouts of rows by sample, tap or voxel are made of.

    order_keys(keys): the positions of the keys in ascending order, equal ones in theirs
    count_ids(ids, num): how often each of 0..num-1 occurs
    running_sum(counts): sums of the counts up to and with each

*Shapes.* One axis, int32 or int64; results are int64. *Limits.* On Apple GPUs rows and sums are
below 2^31. *Empty.* Empty results, or zeros. *Gradient.* None. *Why.* PyTorch's own sort, bincount
and cumsum are wrong or slow on some versions of macOS.
"""

from __future__ import annotations

import torch

from .._registry import Op

__all__ = ["count_ids", "order_keys", "running_sum"]


def _order_reference(keys: torch.Tensor) -> torch.Tensor:
    return torch.argsort(keys, stable=True)


def _count_reference(ids: torch.Tensor, num: int) -> torch.Tensor:
    return torch.bincount(ids, minlength=num)


def _sum_reference(counts: torch.Tensor) -> torch.Tensor:
    return counts.cumsum(0, dtype=torch.int64)


def _long_like(keys: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(keys, dtype=torch.int64)


order_keys = Op("order_keys(Tensor keys) -> Tensor", reference=_order_reference, fake=_long_like)
count_ids = Op(
    "count_ids(Tensor ids, SymInt num) -> Tensor",
    reference=_count_reference,
    fake=lambda ids, num: ids.new_empty(num, dtype=torch.int64),
)
running_sum = Op("running_sum(Tensor counts) -> Tensor", reference=_sum_reference, fake=_long_like)
