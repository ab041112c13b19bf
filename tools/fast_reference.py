"""Shorter torch references for training on a GPU, where each launch counts.

The package's references define the numbers: tap by tap, sums in fixed chunks. On a GPU that is some
ten thousand small launches a step. These give the same sums up to rounding in a few large ones: one
look-up for all taps, one gather and one matrix product a layer. They hold [rows, taps * channels]
in memory, which is why they are a tool and no backend.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sparse3d.geometry import taps
from sparse3d.ops import conv, kernel_map, norm
from sparse3d.ops.coordinates import coordinate_lookup

__all__ = ["forget", "install"]

# Neighbour tables by (identity of src, roles); src is kept so that its memory is not reused.
_tables: dict[tuple[int, bool], tuple[torch.Tensor, torch.Tensor]] = {}
# Gathered rows of the forward pass, for the weight gradient.
_kept: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
_KEPT = 200


def forget() -> None:
    """Drop the neighbour tables and gathered rows of the last step."""
    _tables.clear()
    _kept.clear()


def neighbours(
    src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_in: int, num_out: int
) -> torch.Tensor:
    """Input row of each output row and tap, ``[num_out, K]``; ``num_in`` where there is none."""
    key = (id(src), True)
    if key not in _tables:
        _tables[key] = (src, _neighbours(src, dst, splits, num_in, num_out))
    return _tables[key][1]


def _neighbours(
    src: torch.Tensor, dst: torch.Tensor, splits: torch.Tensor, num_in: int, num_out: int
) -> torch.Tensor:
    counts = splits.diff().to(src.device)
    tap = torch.repeat_interleave(
        torch.arange(len(counts), device=src.device), counts, output_size=len(src)
    )
    table = torch.full((num_out * len(counts),), num_in, dtype=torch.int64, device=src.device)
    table[dst.long() * len(counts) + tap] = src.long()
    return table.reshape(num_out, len(counts))


def _gather(rows: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """``[M, K * C]``, zeros where there is no neighbour; half the bytes on a GPU."""
    small = rows.bfloat16() if rows.is_cuda else rows
    padded = torch.cat([small, small.new_zeros((1, rows.shape[1]))])
    return padded.index_select(0, table.reshape(-1)).reshape(len(table), -1)


def _forward(features, weight, src, dst, splits, plan, grad_plan, num_out, groups):  # noqa: ANN001, ANN202
    table = neighbours(src, dst, splits, len(features), num_out)
    gathered = _gather(features, table)
    if len(_kept) < _KEPT and not torch.is_inference_mode_enabled():
        _kept[features.data_ptr(), id(src)] = (features, gathered)
    kernel = weight.permute(1, 2, 0).reshape(-1, weight.shape[0]).to(gathered.dtype)
    return (gathered @ kernel).to(features.dtype)


def _input_grad(grad, weight, src, dst, splits, plan, grad_plan, num_in, groups):  # noqa: ANN001, ANN202
    key = (id(src), False)
    if key not in _tables:
        _tables[key] = (src, _neighbours(dst, src, splits, len(grad), num_in))
    gathered = _gather(grad, _tables[key][1])
    kernel = weight.permute(1, 0, 2).reshape(-1, weight.shape[2]).to(gathered.dtype)
    return (gathered @ kernel).to(grad.dtype)


def _weight_grad(features, grad, src, dst, splits, plan, grad_plan, groups):  # noqa: ANN001, ANN202
    kept = _kept.pop((features.data_ptr(), id(src)), None)
    if kept is None:
        table = neighbours(src, dst, splits, len(features), len(grad))
        kept = (features, _gather(features, table))
    gathered, taps = kept[1], len(splits) - 1
    upstream = grad.to(gathered.dtype)
    # Many products of a few thousand rows keep a GPU busy; one of all rows does not.
    parts = max(1, len(grad) // 4096)
    even = len(grad) // parts * parts
    made = torch.bmm(
        gathered[:even].reshape(parts, -1, gathered.shape[1]).transpose(1, 2),
        upstream[:even].reshape(parts, -1, grad.shape[1]),
    ).sum(0, dtype=grad.dtype)
    made += (gathered[even:].T @ upstream[even:]).to(grad.dtype)
    return made.reshape(taps, -1, grad.shape[1]).permute(2, 0, 1).contiguous()


def _given(
    coords: torch.Tensor,
    table: torch.Tensor,
    out_coords: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All taps in one look-up."""
    step, shift, spread = (out_coords.new_tensor(list(v)) for v in (stride, padding, dilation))
    tap = out_coords.new_tensor(taps(kernel_size))
    position = (out_coords[:, 1:] * step - shift)[None] + (tap * spread)[:, None]
    column = out_coords[None, :, :1].expand(len(tap), -1, -1)
    queries = torch.cat([column, position], 2).reshape(-1, out_coords.shape[1])
    row = coordinate_lookup(coords, table, queries)
    place = (row >= 0).nonzero()[:, 0]
    counts = (row.reshape(len(tap), -1) >= 0).sum(1).cpu()
    splits = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return row[place], (place % len(out_coords)).int(), splits


def install() -> None:
    """Put them in place of the references, for this process. No groups."""
    conv._forward_reference = _forward
    conv.conv_forward.reference = _forward
    conv.conv_input_grad.reference = _input_grad
    conv.conv_weight_grad.reference = _weight_grad
    kernel_map._given_reference = _given
    kernel_map.kernel_map_given.reference = _given
    norm._column_sum = lambda rows: rows.sum(0)
