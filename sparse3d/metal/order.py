"""Sorting and counting rows on Metal, by sort.metal and scan.metal."""

import torch

from ..ops.order import id_counts, key_order, running_sums
from . import _scan, _shader, _sort

_SIGN = -(2**31)


@key_order.kernel("metal")
def _order(keys: torch.Tensor) -> torch.Tensor:
    keys = keys.contiguous()
    _shader.rows_fit("keys", keys.numel())
    if keys.dtype != torch.int64:
        return _sort.sort(keys.int() ^ _SIGN, 32)[1].long()
    words = keys.view(torch.int32).reshape(-1, 2)
    _, low = _sort.sort(words[:, 0].contiguous(), 32)
    _, high = _sort.sort((words[:, 1] ^ _SIGN)[low.long()], 32)
    return low[high.long()].long()


@id_counts.kernel("metal")
def _count(ids: torch.Tensor, num: int) -> torch.Tensor:
    _shader.rows_fit("ids", ids.numel())
    ordered, _ = _sort.sort(ids.int().contiguous(), num.bit_length())
    return _scan.bounds(ordered, num).diff().long()


@running_sums.kernel("metal")
def _running(counts: torch.Tensor) -> torch.Tensor:
    sums = torch.zeros(counts.numel() + 1, dtype=torch.int32, device=counts.device)
    sums[:-1] = counts
    if counts.numel():
        _scan.scan(sums)
    return sums[1:].long()
