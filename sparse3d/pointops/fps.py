"""Farthest point sampling.

Meaning: starting from one point, take again and again the point whose distance to the nearest
point already taken is largest.
Formula: `best_i = min over taken t of d(p_i, p_t)`, d as in `_distance`; next = argmax best_i.
Order and ties: the order of taking; equal float32 distances go to the smaller index.
Padding: a taken point leaves the race, so that each index appears once while npoint <= N, also for
coincident points; when none is left, index 0 repeats.
Peers' rules, for the stand-ins, by name: `stay` keeps taken points in the race at distance 0 (the
first of several coincident points can come again); `slots = T > 0`, a power of two, orders ties by
`(index mod T with its bits reversed, index)`, which is what a halving reduction over T threads
does.
`skip_near_origin`: points with x^2 + y^2 + z^2 <= 1e-3 are never taken, the start apart.
Accumulation: float32 (float64 for float64).
Gradient: none, indices only.
Determinism: same indices on every backend and with any number of threads.
Errors: npoint < 0, clouds without points, start_idx outside [0, N), NaN or infinity. A batch of no
clouds gives no indices.

Example:
    >>> import torch
    >>> from sparse3d.pointops import furthest_point_sample
    >>> xyz = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [4, 0, 0], [2, 0, 0]]])
    >>> furthest_point_sample(xyz, 3).tolist()
    [[0, 2, 3]]
"""

from __future__ import annotations

import torch

from sparse3d._check import fail
from sparse3d._registry import Op

from . import _inputs

STRATEGIES = ("auto", "single", "multigroup")


def _reversed(slot: torch.Tensor, slots: int) -> torch.Tensor:
    """The bits of a slot number in reverse order."""
    out = torch.zeros_like(slot)
    while slots > 1:
        out = out * 2 + slot % 2
        slot, slots = slot // 2, slots // 2
    return out


def _reference(
    points: torch.Tensor,
    clouds: torch.Tensor,
    num: int,
    stay: bool,
    skip_near_origin: bool,
    slots: int,
    strategy: str,
) -> torch.Tensor:
    """Update every distance for every taken point."""
    taken = torch.zeros(num, dtype=torch.int64, device=points.device)
    for first, last, begin, end, start, base in clouds.tolist():
        cloud = points[first:last]
        rank = torch.arange(last - first, device=points.device)
        if slots:
            rank = _reversed(rank % slots, slots) * (last - first) + rank // slots
        row_of = torch.argsort(rank)
        place = torch.argsort(row_of)  # position in the order that decides ties
        best = cloud.new_full((last - first,), float("inf"))
        barred = torch.zeros_like(best, dtype=torch.bool)
        if skip_near_origin:
            squares = cloud[:, 0] * cloud[:, 0]
            for axis in range(1, cloud.shape[1]):
                squares = squares + cloud[:, axis] * cloud[:, axis]
            barred = squares.double() <= 1e-3
        row = torch.tensor(start - first, device=points.device)
        for place_out in range(begin, end):
            taken[place_out] = row + (first - base)
            difference = cloud - cloud[row]
            distance = difference[:, 0] * difference[:, 0]
            for axis in range(1, cloud.shape[1]):
                distance = distance + difference[:, axis] * difference[:, axis]
            best = torch.minimum(best, distance)
            if not stay:
                barred = barred | (rank == rank[row])
            race = torch.where(barred, -1, best)
            highest = race.max()
            winner = torch.where(race == highest, place, last - first).min()
            row = torch.where(highest < 0, 0, row_of[winner])
    return taken


def _fake(
    points: torch.Tensor,
    clouds: torch.Tensor,
    num: int,
    stay: bool,
    skip_near_origin: bool,
    slots: int,
    strategy: str,
) -> torch.Tensor:
    return points.new_empty((num,), dtype=torch.int64)


fps_sample = Op(
    "fps_sample(Tensor points, Tensor clouds, SymInt num, bool stay, bool skip_near_origin,"
    " int slots, str strategy) -> Tensor",
    reference=_reference,
    fake=_fake,
)
"""Rows of `clouds`, int64 [B, 6] on the CPU: first and last row (exclusive) of the cloud, the range
of the output it fills, the row it starts from, and the base that returned indices are relative to.
"""


def reduction_slots(size: int, most: int) -> int:
    """Threads of a peer's reduction over a cloud: the largest power of two in it, up to `most`."""
    return min(most, 1 << max(size.bit_length() - 1, 0))


def furthest_point_sample(
    xyz: torch.Tensor,
    npoint: int,
    start_idx: int = 0,
    skip_near_origin: bool = False,
    *,
    strategy: str = "auto",
) -> torch.Tensor:
    """Farthest point sampling, dense and batched.

    Args:
        xyz: (B, N, 3) floating points, any strides.
        npoint: points to take from each cloud; may exceed N.
        start_idx: the first taken index.
        skip_near_origin: never take points with a squared norm <= 1e-3, the start apart.
        strategy: `auto`, or a GPU kernel by name (`single` group a cloud, `multigroup`); the result
            does not depend on it.

    Returns:
        (B, npoint) int64 indices into `xyz`.
    """
    _inputs.points("xyz", xyz, 3, 3)
    _inputs.count("npoint", npoint, 0)
    if strategy not in STRATEGIES:
        fail("strategy", f"one of {STRATEGIES}", repr(strategy))
    return sample_dense(xyz, npoint, start_idx, skip_near_origin, strategy)


def sample_dense(
    xyz: torch.Tensor,
    npoint: int,
    start_idx: int = 0,
    skip_near_origin: bool = False,
    strategy: str = "auto",
    *,
    stay: bool = False,
    slots: int = 0,
) -> torch.Tensor:
    """`furthest_point_sample` of checked points under a rule by name."""
    batch, size, dim = xyz.shape
    _inputs.peopled("xyz", xyz)
    if batch and npoint:
        _inputs.count("start_idx", start_idx, 0, size - 1)
    cloud = torch.arange(batch, dtype=torch.int64)
    first = cloud * size
    begin = cloud * npoint
    clouds = torch.stack([first, first + size, begin, begin + npoint, first + start_idx, first], 1)
    taken: torch.Tensor = fps_sample(
        _inputs.computed(xyz.detach()).view(-1, dim),
        clouds,
        batch * npoint,
        stay,
        skip_near_origin,
        slots,
        strategy,
    )
    return taken.view(batch, npoint)
