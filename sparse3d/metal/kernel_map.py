"""Kernel maps on Metal, all four rules for the output coordinates."""

import math
from typing import Any

import torch

from ..ops.kernel_map import (
    CreatedPairs,
    Pairs,
    kernel_map_floor,
    kernel_map_footprint,
    kernel_map_given,
    kernel_map_neighbours,
    kernel_map_submanifold,
)
from . import _scan, _shader, _sort
from . import coordinates as sites


def _neighbours(taps: int, rows: int, device: torch.device, *, empty: bool = False) -> torch.Tensor:
    """A neighbour table without neighbours; `empty` leaves that to a kernel that writes it all."""
    _shader.rows_fit("taps times rows", taps * rows)
    if empty:
        return torch.empty((taps, rows), dtype=torch.int32, device=device)
    return torch.full((taps, rows), -1, dtype=torch.int32, device=device)


def neighbours(
    coords: torch.Tensor, table: torch.Tensor, kernel_size: list[int], dilation: list[int]
) -> torch.Tensor:
    """int32 [K, N]: each row's neighbour through each tap of a submanifold layer, -1 for none."""
    coords, n, taps = coords.contiguous(), coords.shape[0], math.prod(kernel_size)
    found = _neighbours(taps, n, coords.device)
    mask, centre = table.shape[0] - 1, found[taps // 2]
    look_up = sites.kernels_for("coordinates", coords.shape[1])
    _shader.each(look_up, "sp_lookup", coords, table, coords, centre, n, mask, threads=n)
    kernels = sites.kernels_for("kernel_map", coords.shape[1])
    arguments = (coords, table, found, n, mask, taps, kernel_size, dilation)
    _shader.each(kernels, "sp_map_submanifold", *arguments, threads=(n, taps // 2))
    return found


@kernel_map_neighbours.kernel("metal", "cuda")
def _neighbour_rows(
    coords: torch.Tensor, table: torch.Tensor, kernel_size: list[int], dilation: list[int]
) -> torch.Tensor:
    coords, n, taps = coords.contiguous(), coords.shape[0], math.prod(kernel_size)
    _shader.rows_fit("rows times taps", n * taps)
    found = torch.empty((n, taps), dtype=torch.int32, device=coords.device)
    kernels = sites.kernels_for("kernel_map", coords.shape[1])
    arguments = (coords, table, found, n * taps, table.shape[0] - 1, taps, kernel_size, dilation)
    _shader.each(kernels, "sp_map_rows", *arguments, threads=n * taps)
    return found


@kernel_map_submanifold.kernel("metal", "cuda")
def _submanifold(
    coords: torch.Tensor, table: torch.Tensor | None, kernel_size: list[int], dilation: list[int]
) -> Pairs:
    table = sites.table(coords) if table is None else table
    return _scan.pairs(neighbours(coords, table, kernel_size, dilation))


@kernel_map_given.kernel("metal", "cuda")
def _given(
    coords: torch.Tensor,
    table: torch.Tensor,
    out_coords: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Pairs:
    out_coords, m, taps = out_coords.contiguous(), out_coords.shape[0], math.prod(kernel_size)
    found = _neighbours(taps, m, coords.device, empty=True)
    kernels = sites.kernels_for("kernel_map", coords.shape[1])
    geometry = (kernel_size, stride, padding, dilation)
    arguments = (coords.contiguous(), table, out_coords, found, m, table.shape[0] - 1, taps)
    _shader.each(kernels, "sp_map_given", *arguments, *geometry, threads=(m, taps))
    return _scan.pairs(found)


@kernel_map_floor.kernel("metal", "cuda")
def _floor(
    coords: torch.Tensor,
    table: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> CreatedPairs:
    coords, n = coords.contiguous(), coords.shape[0]
    cells = torch.empty_like(coords)
    kernels = sites.kernels_for("kernel_map", coords.shape[1])
    _shader.each(kernels, "sp_floor", coords, cells, n, stride, threads=n)
    first, _, _ = sites.distinct(cells, sites.table(cells))
    out_coords = sites.gather_rows(cells, first)
    pairs = _given(coords, table, out_coords, kernel_size, stride, padding, dilation)
    return out_coords, *pairs


def _reached(
    kernel_size: list[int], stride: list[int], dilation: list[int], transposed: bool
) -> int:
    """Most outputs that one input can reach: on an axis, only taps of one residue land on a
    multiple of the stride."""
    if transposed:
        return math.prod(kernel_size)
    steps = (s // math.gcd(s, d) for s, d in zip(stride, dilation, strict=True))
    return math.prod(-(-k // step) for k, step in zip(kernel_size, steps, strict=True))


@kernel_map_footprint.kernel("metal", "cuda")
def _footprint(
    coords: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    out_shape: list[int],
    transposed: bool,
) -> CreatedPairs:
    coords, n, taps = coords.contiguous(), coords.shape[0], math.prod(kernel_size)
    candidates = n * taps
    _shader.rows_fit("rows times taps", candidates)
    geometry = (kernel_size, stride, padding, dilation)
    # Metal needs a list even where no grid is read.
    shape = list(out_shape) or [0] * len(stride)
    kernels = sites.kernels_for("kernel_map", coords.shape[1])
    slots = sites.capacity(n * _reached(kernel_size, stride, dilation, transposed))
    table = sites.empty_table(slots, coords.device)
    owner = torch.empty(candidates, dtype=torch.int32, device=coords.device)
    where: tuple[_shader.Argument, ...] = (
        candidates,
        slots - 1,
        taps,
        *geometry,
        shape,
        int(bool(out_shape)),
        int(transposed),
    )
    _shader.each(kernels, "sp_footprint_insert", coords, table, *where, threads=candidates)
    _shader.each(kernels, "sp_footprint_owner", coords, table, owner, *where, threads=candidates)
    first, place, falls = _scan.owners(owner, coords)
    created = _created(kernels, coords, first, taps, geometry, transposed)
    if falls and len(created):
        # The rows to sort are 0, 1, ...: `moved` lists former numbers, `number` is its inverse.
        rows = torch.arange(first.shape[0], dtype=torch.int32, device=coords.device)
        number = torch.empty_like(rows)
        moved = sites.by_batch(created, rows, number)
        created = sites.gather_rows(created, moved)
        _shader.each(
            kernels, "sp_renumber", first, number, place, first.shape[0], threads=first.shape[0]
        )
    return created, *_footprint_pairs(kernels, owner, place, len(created), taps)


def _created(
    kernels: Any,
    coords: torch.Tensor,
    first: torch.Tensor,
    taps: int,
    geometry: tuple[list[int], ...],
    transposed: bool,
) -> torch.Tensor:
    out = coords.new_empty((first.shape[0], coords.shape[1]))
    where = (coords, first, out, first.shape[0], taps)
    _shader.each(
        kernels, "sp_footprint_rows", *where, *geometry, int(transposed), threads=first.shape[0]
    )
    return out


def _footprint_pairs(
    kernels: Any, owner: torch.Tensor, place: torch.Tensor, m: int, taps: int
) -> Pairs:
    candidates = owner.numel()
    found = _neighbours(taps, m, owner.device)
    if m == 0:
        return _scan.pairs(found)
    # Splits, and in the low half of one entry more the repeats: the host reads both at once.
    marks = torch.zeros(taps + 2, dtype=torch.int64, device=owner.device)
    repeats = marks.view(torch.int32)[-2:-1]
    arguments = (owner, place, found, repeats, candidates, m, taps)
    _shader.each(kernels, "sp_footprint_pairs", *arguments, threads=candidates)
    offsets = _scan.count_pairs(found, marks)
    marks = marks.cpu()
    if int(marks[-1]) == 0:
        splits = marks[:-1].clone()
        return *_scan.compact_pairs(found, offsets, splits), splits
    return _repeated_pairs(kernels, owner, place, m, taps)


def _repeated_pairs(
    kernels: Any, owner: torch.Tensor, place: torch.Tensor, m: int, taps: int
) -> Pairs:
    """For rows that repeat each other, which make pairs of their own: candidates sorted by output,
    then by tap."""
    candidates = owner.numel()
    keys = torch.empty_like(owner)
    _shader.each(
        kernels, "sp_footprint_keys", owner, place, keys, candidates, m, threads=candidates
    )
    keys, order = _sort.sort(keys, m.bit_length())
    pairs = int(_scan.bounds(keys, m)[-1])
    of_tap = torch.empty(pairs, dtype=torch.int32, device=owner.device)
    _shader.each(kernels, "sp_footprint_taps", order, of_tap, pairs, taps, threads=pairs)
    of_tap, moved = _sort.sort(of_tap, (taps - 1).bit_length())
    src, dst = torch.empty_like(of_tap), torch.empty_like(of_tap)
    arguments = (owner, place, order, moved, src, dst, pairs, taps)
    _shader.each(kernels, "sp_footprint_emit", *arguments, threads=pairs)
    return src, dst, _scan.bounds(of_tap, taps).cpu().long()
