"""Farthest point sampling on Metal: one threadgroup a cloud, or many groups on one large cloud."""

from __future__ import annotations

from typing import Any

import torch

from ..pointops.fps import fps_sample
from . import _shader
from ._clouds import float_points, table

_THREADS = 256
_CHUNK = 1024
_MOST_PARTS = 256
"""Every group of a launch reads what all groups of the one before left."""

_SINGLE_WORK = 1 << 27
"""Points times samples of a cloud above which one group would hold the GPU too long in one launch.
A guess from the M1's arithmetic (about 0.2 s): no Mac ran it."""


_CUDA_THREADS = 1024
_CUDA_ROWS = 16_384
"""Rows of a cloud, times the clouds of a call, above which a launch a sample is faster on CUDA:
there it costs 7 us whatever the rows, and one group passes over 16,384 of them in that time."""


def _takes(points: torch.Tensor, *_: Any) -> bool:
    return float_points(points)


@fps_sample.kernel("metal", "cuda", when=_takes)
def _fps_sample(
    points: torch.Tensor,
    clouds: torch.Tensor,
    num: int,
    stay: bool,
    skip_near_origin: bool,
    slots: int,
    strategy: str,
) -> torch.Tensor:
    taken = torch.zeros(num, dtype=torch.int64, device=points.device)
    points = points.contiguous()
    rows = clouds[:, 1] - clouds[:, 0]
    work = rows * (clouds[:, 3] - clouds[:, 2])
    large = rows > _CUDA_ROWS * len(clouds) if points.is_cuda else work > _SINGLE_WORK
    many = {"single": work < 0, "multigroup": work > 0}.get(strategy, large & (work > 0))
    small = clouds[(work > 0) & ~many]
    rule = (int(stay), int(skip_near_origin), slots)
    kernels = _shader.library("fps")
    if len(small):
        best, dim = points.new_empty(points.shape[0]), points.shape[1]
        arguments = (points, table(small, points.device), best, taken, dim, *rule)
        wanted = _CUDA_THREADS if points.is_cuda else _THREADS
        size = _shader.largest_group(points, kernels, "sp_fps", wanted)
        _shader.groups(kernels, "sp_fps", *arguments, count=(len(small),), size=size)
    for first, last, begin, end, start, base in clouds[many].tolist():
        chosen = _large(kernels, points[first:last], end - begin, start - first, rule)
        taken[begin:end] = chosen.clamp_min(0).long() + (first - base)
    return taken


def _large(
    kernels: Any, points: torch.Tensor, count: int, start: int, rule: tuple[int, int, int]
) -> torch.Tensor:
    """Rows of one cloud, -1 after its last point: a launch a sample."""
    points = _shader.packed(points)
    n, dim = points.shape
    chunk = max(_CHUNK, -(-n // (_MOST_PARTS * _THREADS)) * _THREADS)
    parts = -(-n // chunk)
    chosen = torch.full((count,), start, dtype=torch.int32, device=points.device)
    if count == 1:
        return chosen
    best = points.new_empty(n)
    part_best = points.new_empty(2 * parts)
    part_rank = torch.empty(2 * parts, dtype=torch.int32, device=points.device)
    step = (points, best, chosen, part_best, part_rank, n, dim, *rule, chunk)
    samples = range(1, count)
    size = _shader.largest_group(points, kernels, "sp_fps_step", _THREADS)
    _shader.series(kernels, "sp_fps_step", *step, values=samples, count=(parts,), size=size)
    pick = (part_best, part_rank, chosen, parts, rule[2], n, count - 1)
    _shader.groups(kernels, "sp_fps_pick", *pick, count=(1,), size=32)
    return chosen
