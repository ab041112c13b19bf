"""Padded clouds (N, P, D) with lengths: pytorch3d's operators.

Meaning: row b of a batch is a cloud of `lengths[b]` points (all P where None); what lies behind is
never read. Indices count inside each cloud.
`knn_points`: ascending (distance, index); distances squared, or L1 by `norm=1`; places beyond a
cloud's points hold index 0 and distance 0. `ball_query`: the first K in input order with `d <
fl32(fl32(r) * fl32(r))`; index -1 and distance 0 behind. `sample_farthest_points`: as
`furthest_point_sample`, but taken points stay in the race and everything is float32; a cloud of
fewer than K points gives them all, index -1 behind. `masked_gather`: rows by index, zeros at -1.
`knn_gather`: rows by index, zeros at places k >= lengths.
Gradient: of distances to both clouds, of gathered rows to their source (in ascending order of
place); indices none. Determinism: same bytes on every backend and thread count.
Random starts come from torch's CPU generator.
Errors: lengths beyond the padding, indices outside the cloud, NaN or infinite valid points, clouds
that differ in device, dtype, batch or coordinates, norm other than 1 and 2, K < 0 or not
a whole number.

Example:
    >>> import torch
    >>> from sparse3d.pointops import padded
    >>> p1, p2 = torch.zeros(1, 1, 3), torch.tensor([[[2.0, 0, 0], [1.0, 0, 0], [9.0, 9, 9]]])
    >>> distance, index = padded.knn_points(p1, p2, lengths2=torch.tensor([2]), K=3)
    >>> distance.tolist(), index.tolist()
    ([[[1.0, 4.0, 0.0]]], [[[1, 0, 0]]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from sparse3d._check import fail, same_device
from sparse3d.ops.segment import take_rows

from . import _inputs
from ._clouds import dense
from .ball_query import search as _ball_search
from .fps import fps_sample
from .knn import search as _knn_search


def _pair(
    p1: torch.Tensor,
    p2: torch.Tensor,
    lengths1: torch.Tensor | None,
    lengths2: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two checked padded batches, zeros in their padding, and the table of their clouds."""
    p1, first = _inputs.padded("p1", p1, "lengths1", lengths1)
    p2, second = _inputs.padded("p2", p2, "lengths2", lengths2)
    _inputs.alike("p1", p1, "p2", p2)
    return p1, p2, dense(p1.shape[0], p1.shape[1], p2.shape[1], first, second)


def knn_points(
    p1: torch.Tensor,
    p2: torch.Tensor,
    lengths1: torch.Tensor | None = None,
    lengths2: torch.Tensor | None = None,
    norm: int = 2,
    K: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The K nearest points of `p2` to each point of `p1`.

    Args:
        p1: (N, P1, D) floating.
        p2: (N, P2, D), same dtype and device.
        lengths1: (N,) valid points of each cloud.
        lengths2: as `lengths1`.
        norm: 2 for squared Euclidean distances, 1 for L1.
        K: >= 1; may exceed P2.

    Returns:
        Distances of the points' dtype and int64 indices (N, P1, K), 0 where a cloud has fewer.
    """
    if norm not in (1, 2):
        fail("norm", "1 or 2", norm)
    _inputs.count("K", K, 1)
    p1, p2, clouds = _pair(p1, p2, lengths1, lengths2)
    batch, queries, dim = p1.shape
    rows = p1.reshape(-1, dim), p2.reshape(-1, dim)
    distances, indices = _knn_search(*rows, clouds, K, "l1" if norm == 1 else "squared")
    distances = torch.where(indices >= 0, distances, 0).to(p1.dtype).view(batch, queries, K)
    return distances, indices.clamp_min(0).view(batch, queries, K)


def ball_query(
    p1: torch.Tensor,
    p2: torch.Tensor,
    lengths1: torch.Tensor | None = None,
    lengths2: torch.Tensor | None = None,
    K: int = 500,
    radius: float = 0.2,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first K points of `p2` within `radius` of each point of `p1`.

    Args:
        p1: as `knn_points`.
        p2: as `knn_points`.
        lengths1: as `knn_points`.
        lengths2: as `knn_points`.
        K: >= 0.
        radius: finite and > 0.

    Returns:
        Squared distances of the points' dtype (N, P1, K), 0 behind; int64 indices, -1 behind.
    """
    p1, p2, clouds = _pair(p1, p2, lengths1, lengths2)
    square = _inputs.squared_radius("radius", radius, p1.dtype, flat=False)
    _inputs.count("K", K, 0)
    batch, queries, dim = p1.shape
    distances, indices = _ball_search(p1.reshape(-1, dim), p2.reshape(-1, dim), clouds, square, K)
    shape = (batch, queries, K)
    return distances.to(p1.dtype).view(shape), indices.view(shape)


def _rows(points: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """Rows of each cloud, (N, P, D) at (N, ...): -1 gives the first one."""
    batch, size = points.shape[:2]
    first = torch.arange(batch, device=idx.device).view(-1, *[1] * (idx.ndim - 1)) * size
    rows = points.reshape(batch * size, points.shape[2])
    at = idx.long().clamp_min(0) + first
    return take_rows(rows, at) if points.is_floating_point() else rows[at]


def masked_gather(points: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """Rows of each cloud by index, zeros where the index is -1.

    Args:
        points: (N, P, D) floating.
        idx: (N, K) or (N, M, K) int64 or int32 in [-1, P).

    Returns:
        `idx`'s shape and D.
    """
    if idx.ndim not in (2, 3):
        fail("idx", "of shape (N, K) or (N, M, K)", list(idx.shape))
    _inputs.shaped("points", points, 3)
    _inputs.index("idx", idx, idx.ndim, max(points.shape[1], 1), pad=True)
    same_device(points=points, idx=idx)
    if points.shape[0] != idx.shape[0]:
        fail("idx", f"of batch size {points.shape[0]} as points has", idx.shape[0])
    if points.shape[1] == 0:
        return points.new_zeros((*idx.shape, points.shape[2]))
    return torch.where((idx >= 0)[..., None], _rows(points, idx), 0)


def knn_gather(
    x: torch.Tensor, idx: torch.Tensor, lengths: torch.Tensor | None = None
) -> torch.Tensor:
    """Rows of each cloud at its neighbours' indices, zeros in places k >= lengths.

    Args:
        x: (N, P, C) floating.
        idx: (N, M, K) int64 or int32 in [0, P); 0 also where the cloud has no points.
        lengths: (N,) valid rows of each cloud.

    Returns:
        (N, M, K, C).
    """
    _inputs.shaped("x", x, 3)
    # Of a cloud without points, `knn_points` returns zeros.
    _inputs.index("idx", idx, 3, max(x.shape[1], 1), pad=False)
    same_device(x=x, idx=idx)
    if x.shape[0] != idx.shape[0]:
        fail("idx", f"of batch size {x.shape[0]} as x has", idx.shape[0])
    batch, size, channels = x.shape
    k = idx.shape[2]
    counts = _inputs.lengths("lengths", lengths, batch, size, x.device)
    if size == 0:
        return x.new_zeros((*idx.shape, channels))
    out = _rows(x, idx)
    if counts is None and size >= k:
        return out
    counts = torch.full((batch,), size) if counts is None else counts
    valid = (torch.arange(k) < counts[:, None]).to(x.device)
    return torch.where(valid[:, None, :, None], out, 0)


def _whole_numbers(value: int | Sequence[int] | torch.Tensor) -> torch.Tensor:
    """Points to take from each cloud, int64 on the CPU: whole numbers only, none cut off."""
    listed: Any = value.reshape(-1).tolist() if hasattr(value, "reshape") else value
    several = isinstance(listed, Sequence) and not isinstance(listed, str)
    numbers = listed if several else [listed]
    return torch.tensor([_inputs.count("K", number, 0) for number in numbers], dtype=torch.int64)


def sample_farthest_points(
    points: torch.Tensor,
    lengths: torch.Tensor | None = None,
    K: int | Sequence[int] | torch.Tensor = 50,
    random_start_point: bool = False,
) -> torch.Tensor:
    """Indices of the farthest points of each cloud, in the order of taking.

    Args:
        points: (N, P, D) floating, compared in float32.
        lengths: (N,) valid points of each cloud.
        K: points to take, one number or one a cloud; a cloud gives at most what it has.
        random_start_point: start from a random point of each cloud, else from its first.

    Returns:
        (N, largest K) int64, -1 behind.
    """
    points, counts = _inputs.padded("points", points, "lengths", lengths)
    batch, size, dim = points.shape
    counts = torch.full((batch,), size) if counts is None else counts
    wanted = _whole_numbers(K)
    if wanted.numel() not in (1, batch):
        fail("K", f"one number or {batch}, one a cloud", wanted.numel())
    wanted = wanted.expand(batch)
    widest = int(wanted.max()) if batch else 0
    taken = torch.minimum(wanted, counts)
    first = torch.arange(batch) * size
    start = first.clone()
    if random_start_point:
        start += (torch.rand(batch) * counts).long().minimum((counts - 1).clamp_min(0))
    ends = taken.cumsum(0)
    clouds = torch.stack([first, first + counts, ends - taken, ends, start, first], 1)
    rows = _inputs.computed(points.detach().float()).view(-1, dim)
    found = fps_sample(rows, clouds, int(taken.sum()), True, False, 0, "auto")
    indices = torch.full((batch, widest), -1, dtype=torch.int64, device=points.device)
    indices[torch.arange(widest) < taken[:, None]] = found
    return indices
