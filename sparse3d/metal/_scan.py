"""Compaction and sorting on the device, for the other launch modules."""

import torch

from . import _shader

BLOCK = 1024
THREADS = 256


def _blocks(length: int) -> int:
    return -(-length // BLOCK)


def scan(counts: torch.Tensor) -> None:
    """Exclusive prefix sum in place; `counts` has one more element, which becomes the total."""
    kernels = _shader.library("scan")
    _shader.groups(kernels, "sp_scan", counts, counts.numel() - 1, count=(1,), size=THREADS)


def _offsets(values: torch.Tensor, segments: int, length: int, mode: int) -> torch.Tensor:
    """Where each block's counted elements go, [segments * blocks + 1] int32."""
    kernels, blocks = _shader.library("scan"), _blocks(length)
    counts = torch.zeros(segments * blocks + 1, dtype=torch.int32, device=values.device)
    _shader.groups(
        kernels, "sp_count", values, counts, length, mode, count=(blocks, segments), size=THREADS
    )
    scan(counts)
    return counts


def pairs(table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The entries of a neighbour table [K, M] that are not -1, tap by tap: (value, position, splits
    on the CPU)."""
    segments, length = table.shape
    if length == 0:
        none = table.new_empty(0)
        return none, none.clone(), torch.zeros(segments + 1, dtype=torch.int64)
    _shader.rows_fit("taps times output rows", table.numel())
    kernels, blocks = _shader.library("scan"), _blocks(length)
    offsets = _offsets(table, segments, length, mode=0)
    splits = torch.empty(segments + 1, dtype=torch.int64, device=table.device)
    _shader.each(kernels, "sp_splits", offsets, splits, segments, blocks, threads=segments + 1)
    splits = splits.cpu()
    src = table.new_empty(int(splits[-1]))
    dst = torch.empty_like(src)
    if src.numel():
        grid = (blocks, segments)
        _shader.groups(
            kernels, "sp_compact_pairs", table, offsets, src, dst, length, count=grid, size=THREADS
        )
    return src, dst, splits


def owners(owner: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions that own themselves, in order, and their number in that order at each such position
    (int32)."""
    length = owner.numel()
    rank = torch.full_like(owner, -1)
    if length == 0:
        return owner.new_empty(0), rank
    kernels = _shader.library("scan")
    offsets = _offsets(owner, 1, length, mode=1)
    first = owner.new_empty(int(offsets[-1:].cpu()))
    if first.numel():
        grid = (_blocks(length),)
        _shader.groups(
            kernels,
            "sp_compact_owners",
            owner,
            offsets,
            first,
            rank,
            length,
            count=grid,
            size=THREADS,
        )
    return first, rank


def sort(keys: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Stable sort of non-negative int32 keys below 2**bits: (sorted keys, their former positions),
    both int32."""
    n = keys.numel()
    kernels, blocks = _shader.library("scan"), _blocks(n)
    rows = torch.arange(n, dtype=torch.int32, device=keys.device)
    if n < 2:
        return keys, rows
    for shift in range(0, max(bits, 1), 4):
        counts = torch.zeros(16 * blocks + 1, dtype=torch.int32, device=keys.device)
        _shader.groups(
            kernels, "sp_sort_count", keys, counts, n, shift, count=(blocks,), size=THREADS
        )
        scan(counts)
        keys_out, rows_out = torch.empty_like(keys), torch.empty_like(rows)
        arguments = (keys, rows, counts, keys_out, rows_out, n, shift, int(shift == 0))
        _shader.groups(kernels, "sp_sort_scatter", *arguments, count=(blocks,), size=THREADS)
        keys, rows = keys_out, rows_out
    return keys, rows


def bounds(keys: torch.Tensor, segments: int) -> torch.Tensor:
    """int32 [segments + 1]: where each key 0..segments begins in ascending keys."""
    out = torch.zeros(segments + 1, dtype=torch.int32, device=keys.device)
    if keys.numel():
        arguments = (keys, out, keys.numel(), segments)
        _shader.each(_shader.library("scan"), "sp_bounds", *arguments, threads=segments + 1)
    return out
