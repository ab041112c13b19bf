"""Shell query: points between two radii, in flat clouds with inclusive offsets.

Meaning: of a query's cloud those points count with `d <= 1e-5` or `min_radius^2 <= d <
max_radius^2`, d as in `_distance`, both radii squared as in `ball_query`. `shell_query` orders them
by (d, index); of n > nsample it keeps the places `int(fl32(n / nsample) * i)`, i = 0 .. nsample -
1, so that the whole shell is spread over. `random_shell_query` keeps nsample of them in random
order, from torch's CPU generator.
Padding: index -1 and distance 1e5. Indices are int32 rows of the whole tensor.
Gradient: none. Determinism: same bytes on every backend and thread count, for the same seed.
Errors: as `pointcept.knn_query`; radii that are not 0 <= min_radius < max_radius; nsample < 1.

Example:
    >>> import torch
    >>> from sparse3d.pointops import shell
    >>> line = torch.arange(20.0)[:, None] * torch.tensor([1.0, 0, 0])
    >>> end, one = torch.tensor([20]), torch.tensor([1])
    >>> index, distance = shell.shell_query(4, 8.5, 0.0, line, end, line[:1], one)
    >>> index.tolist(), distance.tolist()
    ([[0, 2, 4, 6]], [[0.0, 2.0, 4.0, 6.0]])
"""

from __future__ import annotations

import torch

from sparse3d._check import fail
from sparse3d.ops.order import order_keys

from . import _inputs
from ._distance import root
from .knn import search
from .pointcept import MISSING, offset_clouds

COINCIDENT = 1e-5


def _candidates(
    nsample: int,
    max_radius: float,
    min_radius: float,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor | None,
    new_offset: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every point of the shell by distance: squared distances, rows, and which of them count."""
    points, queries, clouds = offset_clouds(xyz, offset, new_xyz, new_offset)
    _inputs.count("nsample", nsample, 1)
    outer = _inputs.squared_radius("max_radius", max_radius, points.dtype, flat=False)
    least = _inputs.number("min_radius", min_radius)
    if not 0 <= least < _inputs.number("max_radius", max_radius):
        fail("min_radius", f"in [0, {max_radius}), max_radius", min_radius)
    inner = _inputs.square_of(least, points.dtype, flat=False)
    largest = int((clouds[:, 3] - clouds[:, 2]).max()) if len(clouds) else 0
    k = min(max(4 * nsample, 64), largest)
    while True:
        squared, rows = search(queries.detach(), points.detach(), clouds, k)
        near = (squared < outer) | (squared <= COINCIDENT)
        if k >= largest or not bool((near & (rows >= 0))[:, -1:].any()):
            break
        k = min(4 * k, largest)
    kept = (squared <= COINCIDENT) | ((squared >= inner) & (squared < outer))
    return squared, rows, kept & (rows >= 0)


def _first(kept: torch.Tensor) -> torch.Tensor:
    """Places of each row in order, those that are kept before the others."""
    queries, width = kept.shape
    row = torch.arange(queries, device=kept.device)[:, None]
    order = order_keys((2 * row + (~kept).long()).reshape(-1))
    return order.view(queries, width) - row * width


def _finish(
    squared: torch.Tensor, rows: torch.Tensor, place: torch.Tensor, valid: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if rows.shape[1] == 0:
        return rows.new_full(place.shape, -1).int(), squared.new_full(place.shape, MISSING)
    at = place.clamp(0, rows.shape[1] - 1)
    index = torch.where(valid, rows.gather(1, at), -1)
    distance = torch.where(valid, root(squared.gather(1, at)), MISSING)
    return index.int(), distance


def shell_query(
    nsample: int,
    max_radius: float,
    min_radius: float,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the shell by distance, spread over all of them where there are too many.

    Args:
        nsample: points a query, >= 1.
        max_radius: finite and > 0.
        min_radius: >= 0 and below `max_radius`.
        xyz: (n, 3) floating points, clouds one after the other.
        offset: (b,) int64 or int32 inclusive ends of the clouds.
        new_xyz: (m, 3) queries; `xyz` where None.
        new_offset: (b,) ends of the queries' clouds.

    Returns:
        int32 rows (m, nsample) and Euclidean distances, ascending.
    """
    squared, rows, kept = _candidates(
        nsample, max_radius, min_radius, xyz, offset, new_xyz, new_offset
    )
    counts = kept.sum(1, keepdim=True)
    ranked = _first(kept)
    step = counts.float() / nsample
    slot = torch.arange(nsample, device=rows.device)
    spread = (step * slot).long()
    rank = torch.where(counts > nsample, spread, slot)
    valid = slot < counts
    if rows.shape[1]:
        rank = ranked.gather(1, rank.clamp(0, rows.shape[1] - 1))
    return _finish(squared, rows, rank, valid)


def random_shell_query(
    nsample: int,
    max_radius: float,
    min_radius: float,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the shell in random order, the first nsample of them; see `shell_query`."""
    squared, rows, kept = _candidates(
        nsample, max_radius, min_radius, xyz, offset, new_xyz, new_offset
    )
    shuffle = torch.rand(rows.shape).argsort(dim=1).to(rows.device)
    ranked = shuffle.gather(1, _first(kept.gather(1, shuffle)))[:, :nsample]
    slot = torch.arange(nsample, device=rows.device)
    place = torch.nn.functional.pad(ranked, (0, nsample - ranked.shape[1]))
    return _finish(squared, rows, place, slot < kept.sum(1, keepdim=True))
