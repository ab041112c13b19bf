"""pointops.query: neighbours of flat clouds; index -1 and distance 1e5 where there is none."""

from __future__ import annotations

import torch

from ..._check import fail
from ...ops.order import order_columns
from ...pointops import _inputs
from ...pointops._distance import root
from ...pointops.knn import search
from ...pointops.pointcept import MISSING, knn_query, offset_clouds

__all__ = ["ball_query", "knn_query", "knnquery", "random_ball_query"]

_COINCIDENT = 1e-5


def knnquery(
    nsample: int,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None,
    offset: torch.Tensor,
    new_offset: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`knn_query` with the arguments of the first generation."""
    return knn_query(nsample, xyz, offset, new_xyz, new_offset)


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
    if not 0 <= min_radius < max_radius:
        fail("min_radius", f"in [0, {max_radius}), max_radius", min_radius)
    inner = torch.tensor(min_radius, dtype=torch.float32).square().item()
    largest = int((clouds[:, 3] - clouds[:, 2]).max()) if len(clouds) else 0
    k = min(max(4 * nsample, 64), largest)
    while True:
        squared, rows = search(queries.detach(), points.detach(), clouds, k)
        near = (squared < outer) | (squared <= _COINCIDENT)
        if k >= largest or not bool((near & (rows >= 0))[:, -1:].any()):
            break
        k = min(4 * k, largest)
    kept = (squared <= _COINCIDENT) | ((squared >= inner) & (squared < outer))
    return squared, rows, kept & (rows >= 0)


def _finish(
    squared: torch.Tensor, rows: torch.Tensor, place: torch.Tensor, valid: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if rows.shape[1] == 0:
        return rows.new_full(place.shape, -1).int(), squared.new_full(place.shape, MISSING)
    at = place.clamp(0, rows.shape[1] - 1)
    index = torch.where(valid, rows.gather(1, at), -1)
    near = squared.gather(1, at)
    # Apple GPUs have no float64, which the root goes through.
    near = root(near.cpu()).to(near.device) if near.device.type == "mps" else root(near)
    distance = torch.where(valid, near, MISSING)
    return index.int(), distance


def ball_query(
    nsample: int,
    max_radius: float,
    min_radius: float,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the shell by distance; of n > nsample the places floor(i * n / nsample).

    Kept are d^2 <= 1e-5 and min^2 <= d^2 < max^2.
    """
    squared, rows, kept = _candidates(
        nsample, max_radius, min_radius, xyz, offset, new_xyz, new_offset
    )
    counts = kept.sum(1, keepdim=True)
    ranked = order_columns((~kept).int())  # kept ones first
    step = counts.float() / nsample
    slot = torch.arange(nsample, device=rows.device)
    spread = (step * slot).long()
    rank = torch.where(counts > nsample, spread, slot)
    valid = slot < counts
    if rows.shape[1]:
        rank = ranked.gather(1, rank.clamp(0, rows.shape[1] - 1))
    return _finish(squared, rows, rank, valid)


def random_ball_query(
    nsample: int,
    max_radius: float,
    min_radius: float,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of the shell in random order, the first nsample of them."""
    squared, rows, kept = _candidates(
        nsample, max_radius, min_radius, xyz, offset, new_xyz, new_offset
    )
    chance = torch.rand(rows.shape).to(rows.device)
    # Bits of numbers that are not negative are in their order.
    ranked = order_columns(torch.where(kept, chance, 2.0).view(torch.int32))[:, :nsample]
    slot = torch.arange(nsample, device=rows.device)
    place = torch.nn.functional.pad(ranked, (0, nsample - ranked.shape[1]))
    return _finish(squared, rows, place, slot < kept.sum(1, keepdim=True))
