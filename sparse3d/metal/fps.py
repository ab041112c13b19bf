"""Farthest point sampling on Metal: one threadgroup a cloud, or many groups on one large cloud."""

from __future__ import annotations

from typing import Any

import torch

from ..pointops.fps import fps_sample
from . import _shader
from ._clouds import float_points, table

_THREADS = 256
_CHUNK = 4096
_SINGLE_WORK = 1 << 27
"""Points times samples of a cloud above which one group would hold the GPU too long in one launch.
A guess from the M1's arithmetic (about 0.2 s): no Mac ran it."""


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
    work = (clouds[:, 1] - clouds[:, 0]) * (clouds[:, 3] - clouds[:, 2])
    many = {"single": work < 0, "multigroup": work > 0}.get(strategy, work > _SINGLE_WORK)
    small = clouds[(work > 0) & ~many]
    rule = (int(stay), int(skip_near_origin), slots)
    kernels = _shader.library("fps")
    if len(small):
        rows, best = table(small, points.device), points.new_empty(points.shape[0])
        dim = points.shape[1]
        arguments = (points, rows, best, taken, dim, *rule)
        _shader.groups(kernels, "sp_fps", *arguments, count=(len(small),), size=_THREADS)
    for first, last, begin, end, start, base in clouds[many].tolist():
        rows = _large(kernels, points[first:last], end - begin, start - first, rule)
        taken[begin:end] = rows.clamp_min(0).long() + (first - base)
    return taken


def _large(
    kernels: Any, points: torch.Tensor, count: int, start: int, rule: tuple[int, int, int]
) -> torch.Tensor:
    """Rows of one cloud, -1 after its last point: two launches a sample."""
    points = _shader.packed(points)
    n, dim = points.shape
    parts = -(-n // _CHUNK)
    chosen = torch.full((count,), -1, dtype=torch.int32, device=points.device)
    chosen[0] = start
    best = points.new_empty(n)
    part_best = points.new_empty(parts)
    part_rank = torch.empty(parts, dtype=torch.int32, device=points.device)
    for out in range(1, count):
        step = (points, best, chosen, part_best, part_rank, n, dim, *rule, out, _CHUNK)
        _shader.groups(kernels, "sp_fps_step", *step, count=(parts,), size=_THREADS)
        pick = (part_best, part_rank, chosen, parts, rule[2], n, out)
        _shader.groups(kernels, "sp_fps_pick", *pick, count=(1,), size=32)
    return chosen
