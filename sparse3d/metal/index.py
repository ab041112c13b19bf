"""The spatial index on Metal: points on a Z curve under two levels of boxes."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ..pointops.index import spatial_index
from . import _shader, _sort
from ._clouds import float_points, table

OUTER = 1024
"""Places of an outer box: 32 boxes of 32."""

_KEY_BITS = 30
_INT32_MAX = 2**31 - 1
_WORTH = 1 << 27
"""Pairs of query and point above which a search builds an index for itself: building takes about
60 launches."""


class Index(NamedTuple):
    """Where each cloud begins, and the lists that kernels read."""

    starts: torch.Tensor
    rows: torch.Tensor
    points: torch.Tensor
    boxes: torch.Tensor
    outer: torch.Tensor


def _bounds(lengths: torch.Tensor) -> torch.Tensor:
    """int32 [B + 1] on the CPU: sums of the lengths before each."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()


def _starts(clouds: torch.Tensor) -> torch.Tensor:
    """Places of each cloud, multiples of 1,024."""
    lengths = (clouds[:, 3] - clouds[:, 2]).clamp_min(0)
    return _bounds(-(-lengths // OUTER) * OUTER)


def can(reference: torch.Tensor, clouds: torch.Tensor) -> bool:
    """Whether an index can be built: up to three axes, and 32-bit places."""
    few_axes = float_points(reference) and 1 <= reference.shape[1] <= 3
    total = int((clouds[:, 3] - clouds[:, 2]).clamp_min(0).sum()) if few_axes else 0
    return total > 0 and total + OUTER * len(clouds) <= _INT32_MAX and len(clouds) < 1 << 15


def worth(clouds: torch.Tensor) -> bool:
    """Whether a search that was given none should build one."""
    pairs = (clouds[:, 1] - clouds[:, 0]) * (clouds[:, 3] - clouds[:, 2])
    return int(pairs.sum()) > _WORTH


def opened(index: torch.Tensor, clouds: torch.Tensor, dim: int) -> Index:
    """The lists inside an index."""
    starts = _starts(clouds)
    places = int(starts[-1])
    sizes = [places, places * dim, places // 32 * 2 * dim, places // OUTER * 2 * dim]
    rows, *floats = torch.split(index.view(torch.int32), sizes)
    points, boxes, outer = (part.view(torch.float32) for part in floats)
    return Index(starts.to(index.device), rows, points, boxes, outer)


def build(reference: torch.Tensor, clouds: torch.Tensor) -> torch.Tensor:
    """The index, as opaque bytes."""
    reference, dim, device = reference.contiguous(), reference.shape[1], reference.device
    places = int(_starts(clouds)[-1])
    words = places * (1 + dim) + (places // 32 + places // OUTER) * 2 * dim
    index = torch.full((words,), -1, dtype=torch.int32, device=device).view(torch.uint8)
    starts, rows, points, boxes, outer = opened(index, clouds, dim)
    entry_bounds = _bounds((clouds[:, 3] - clouds[:, 2]).clamp_min(0))
    entries, begins = int(entry_bounds[-1]), entry_bounds.to(device)
    lists, kernels = table(clouds, device), _shader.library("index")
    order = _on_curve(kernels, reference, lists, begins, entries)
    fill = (reference, lists, begins, starts, order, rows, points, entries, len(clouds), dim)
    _shader.each(kernels, "sp_index_fill", *fill, threads=entries)
    _shader.each(kernels, "sp_index_boxes", rows, points, boxes, places, dim, threads=places)
    count = places // 32
    _shader.each(kernels, "sp_index_outer", boxes, outer, count, dim, threads=count)
    return index


def _on_curve(
    kernels: _shader.Library,
    reference: torch.Tensor,
    lists: torch.Tensor,
    begins: torch.Tensor,
    entries: int,
) -> torch.Tensor:
    """Entries sorted by cloud, then along the curve."""
    (n, dim), clouds = reference.shape, lists.shape[0]
    lows = torch.full((dim,), _INT32_MAX, dtype=torch.int32, device=reference.device)
    highs = torch.full_like(lows, -_INT32_MAX - 1)
    whole = -(-n // 32) * 32
    _shader.each(kernels, "sp_index_bounds", reference, lows, highs, n, dim, threads=whole)
    cloud_bits = (clouds - 1).bit_length()
    bits = min((_KEY_BITS - cloud_bits) // dim, 10)
    keys = torch.empty(entries, dtype=torch.int32, device=reference.device)
    arguments = (reference, lists, begins, lows, highs, keys, entries, clouds, dim, bits)
    _shader.each(kernels, "sp_index_keys", *arguments, threads=entries)
    return _sort.sort(keys, cloud_bits + bits * dim)[1]


@spatial_index.kernel("metal", "cuda")
def _spatial_index(reference: torch.Tensor, clouds: torch.Tensor) -> torch.Tensor:
    if not can(reference, clouds):
        return reference.new_empty(0, dtype=torch.uint8)
    return build(reference, clouds)
