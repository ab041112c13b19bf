"""Segment reductions on Metal: a stable sort by segment, then sums in a fixed order. No float
atomics."""

from typing import Any, NamedTuple

import torch

from ..ops._conv_reference import CHUNK
from ..ops.segment import segment_max, segment_sum
from . import _scan, _shader, _sort


class Segments(NamedTuple):
    """Entries sorted by segment, first entry and first chunk of each segment, and a bound on the
    chunks."""

    order: torch.Tensor
    starts: torch.Tensor
    chunks: torch.Tensor
    most_chunks: int


def _takes(values: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(values)


def sort(ids: torch.Tensor, num: int) -> Segments:
    """Sorts entries by int32 id; ids of `num` belong to no segment."""
    keys, order = _sort.sort(ids, num.bit_length())
    starts = _scan.bounds(keys, num)
    chunks = torch.zeros(num + 1, dtype=torch.int32, device=ids.device)
    kernels = _shader.library("segment")
    _shader.each(kernels, "sp_segment_chunks", starts, chunks, num, threads=num)
    _scan.scan(chunks)
    return Segments(order, starts, chunks, ids.numel() // CHUNK + min(num, ids.numel()))


def total(
    values: torch.Tensor, segments: Segments, num: int, weights: torch.Tensor | None, corners: int
) -> torch.Tensor:
    """Sum of each segment; with weights, entry e stands for `weights[e] * values[e // corners]`."""
    channels, most = values.shape[1], segments.most_chunks
    element = _shader.element(values.dtype)
    kernels = _shader.library("segment", SP_ELEM=element, SP_WEIGHTED=int(weights is not None))
    partial = torch.empty((most, channels), dtype=torch.float32, device=values.device)
    factors = partial.new_zeros(1) if weights is None else weights
    lists = (segments.order, factors, segments.starts, segments.chunks, partial)
    shape = (channels, num, most, corners)
    _shader.each(kernels, "sp_segment_sum", values, *lists, *shape, threads=(channels, most))
    out = values.new_empty((num, channels))
    arguments = (partial, segments.chunks, out, channels, num)
    _shader.each(kernels, "sp_segment_total", *arguments, threads=(channels, num))
    return out


@segment_sum.kernel("metal", "cuda", when=_takes)
def _sum(values: torch.Tensor, ids: torch.Tensor, num: int) -> torch.Tensor:
    if values.numel() == 0 or num == 0:
        return values.new_zeros((num, values.shape[1]))
    return total(values.contiguous(), sort(ids.int(), num), num, None, 1)


@segment_max.kernel("metal", "cuda", when=_takes)
def _max(values: torch.Tensor, ids: torch.Tensor, num: int) -> tuple[torch.Tensor, torch.Tensor]:
    channels = values.shape[1]
    out = values.new_zeros((num, channels))
    arg = torch.full(out.shape, -1, dtype=torch.int64, device=values.device)
    if values.numel() == 0 or num == 0:
        return out, arg
    values, s = values.contiguous(), sort(ids.int(), num)
    kernels = _shader.library("segment", SP_ELEM=_shader.element(values.dtype))
    partial = torch.empty((s.most_chunks, channels), dtype=torch.int32, device=values.device)
    arguments = (values, s.order, s.starts, s.chunks, partial, channels, num, s.most_chunks)
    _shader.each(kernels, "sp_segment_max", *arguments, threads=(channels, s.most_chunks))
    best = (values, partial, s.chunks, out, arg, channels, num)
    _shader.each(kernels, "sp_segment_best", *best, threads=(channels, num))
    return out, arg
