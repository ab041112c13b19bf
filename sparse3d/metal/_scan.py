"""Sums and compaction on the device, for the other launch modules."""

import torch

from . import _shader

BLOCK = 1024
_SIZES = (256, 128, 64, 32)


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def _launch(
    name: str, first: torch.Tensor, *rest: _shader.Argument, count: tuple[int, ...]
) -> None:
    """One of scan.metal's kernels, in the largest groups that the GPU runs."""
    choices = ((_shader.library("scan", SP_SCAN_THREADS=size), size) for size in _SIZES)
    kernels, size = _shader.first_that_fits(first, name, choices)
    _shader.groups(kernels, name, first, *rest, count=count, size=size)


def scan(counts: torch.Tensor, length: int | None = None) -> None:
    """Exclusive prefix sum of the first `length` (all but one by default) in place; the element
    after them becomes the total."""
    length = counts.numel() - 1 if length is None else length
    _launch("sp_scan", counts, length, count=(1,))


def _count(counts: torch.Tensor, values: torch.Tensor, segments: int, mode: int) -> None:
    """How many elements of each block count, segment after segment, from the first of `counts`."""
    length = values.numel() // segments
    arguments = (values, counts, length, mode)
    grid = (_blocks(length), segments)
    _launch("sp_count", *arguments, count=grid)


def pairs(table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The entries of a neighbour table [K, M] that are not -1, tap by tap: (value, position, splits
    on the CPU)."""
    splits = torch.empty(table.shape[0] + 1, dtype=torch.int64, device=table.device)
    offsets = count_pairs(table, splits)
    splits = splits.cpu()
    return *compact_pairs(table, offsets, splits), splits


def count_pairs(table: torch.Tensor, splits: torch.Tensor) -> torch.Tensor:
    """Writes the first K + 1 of int64 `splits`; returns what `compact_pairs` needs."""
    segments, length = table.shape
    _shader.rows_fit("taps times output rows", table.numel())
    blocks = _blocks(length)
    offsets = torch.empty(segments * blocks + 1, dtype=torch.int32, device=table.device)
    if length:
        _count(offsets, table, segments, mode=0)
    arguments = (offsets, splits, segments, blocks)
    _launch("sp_scan_splits", *arguments, count=(1,))
    return offsets


def compact_pairs(
    table: torch.Tensor, offsets: torch.Tensor, splits: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and positions of a counted table; `splits` on the CPU."""
    segments, length = table.shape
    src = table.new_empty(int(splits[segments]))
    dst = torch.empty_like(src)
    if src.numel():
        arguments = (table, offsets, src, dst, length)
        grid = (_blocks(length), segments)
        _launch("sp_compact_pairs", *arguments, count=grid)
    return src, dst


def owners(owner: torch.Tensor, coords: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Positions that own themselves, in order; at each such position its number in that order
    (int32, anything elsewhere); and whether the batch column of `coords` falls somewhere.

    The host waits once, for both answers.
    """
    length, blocks = owner.numel(), _blocks(owner.numel())
    rank = torch.empty_like(owner)
    if length == 0:
        return owner.new_empty(0), rank, False
    offsets = torch.zeros(blocks + 2, dtype=torch.int32, device=owner.device)
    _count(offsets, owner, 1, mode=1)
    scan(offsets, blocks)
    columns = _shader.library("coordinates", SP_COLS=coords.shape[1])
    falls = (coords, offsets[blocks + 1 :], coords.shape[0])
    _shader.each(columns, "sp_batch_falls", *falls, threads=coords.shape[0])
    count, fallen = offsets[blocks:].tolist()
    first = owner.new_empty(count)
    if count:
        arguments = (owner, offsets, first, rank, length)
        _launch("sp_compact_owners", *arguments, count=(blocks,))
    return first, rank, bool(fallen)


def bounds(keys: torch.Tensor, segments: int) -> torch.Tensor:
    """int32 [segments + 1]: where each key 0..segments begins in ascending keys."""
    out = torch.zeros(segments + 1, dtype=torch.int32, device=keys.device)
    if keys.numel():
        arguments = (keys, out, keys.numel(), segments)
        _shader.each(_shader.library("scan"), "sp_bounds", *arguments, threads=segments + 1)
    return out
