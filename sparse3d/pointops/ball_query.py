"""Ball query: the first K points within a radius, in input order.

Meaning: for each query the first K reference points of its own cloud, by index, with `d < r2`.
Which points are kept depends on their order, not on their distance; `nearest=True` keeps the
nearest K, by distance, then index.
Formula: d as in `_distance`; `r2 = fl32(fl32(r) * fl32(r))`, compared strictly. Half precision
inputs are widened to float32 first, which is exact. float64 inputs: `r2 = r * r` in float64.
Order and ties: ascending index.
Padding: index -1 and distance 0 after the last hit; a query without any hit is all padding.
`repeat_first=True` (as PointNet++'s own) repeats the first hit instead, index and distance; a query
without any hit then holds index 0 at distance 0.
Accumulation: float32 (float64 for float64).
Gradient: of the squared distances to both clouds; padding and the choice of points carry none.
Determinism: same bytes on every backend and with any number of threads.
Nearest first: K points are then looked for, so that K <= 1024 holds for min(K, N).
Errors: radius not finite, <= 0, or with a square that underflows or overflows float32; K < 0; NaN
or infinite points; reference clouds without points; clouds that differ in device, dtype, batch or
coordinates. No queries give no hits.

Example:
    >>> import torch
    >>> from sparse3d.pointops import ball_query
    >>> ref = torch.tensor([[[3.0, 0, 0], [0.5, 0, 0], [0, 0, 0]]])
    >>> distance, index = ball_query(torch.zeros(1, 1, 3), ref, 1.0, 4)
    >>> distance.tolist(), index.tolist()
    ([[[0.25, 0.0, 0.0, 0.0]]], [[[1, 2, -1, -1]]])
"""

from __future__ import annotations

from typing import Any

import torch

from sparse3d._registry import Op

from . import _clouds, _distance, _inputs, knn


def _reference(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    index: torch.Tensor,
    squared_radius: float,
    k: int,
    skip_same: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mark all hits of a cloud and keep the first k of each row."""
    distances = query.new_zeros((query.shape[0], k))
    indices = query.new_full((query.shape[0], k), -1, dtype=torch.int64)
    for begin, end, first, last, base in clouds.tolist():
        kept = min(k, last - first)
        if kept == 0:
            continue
        column = torch.arange(last - first, device=query.device)
        step = max(1, _distance.PAIRS_A_CHUNK // (last - first))
        for row in range(begin, end, step):
            stop = min(row + step, end)
            all_distances = _distance.pairwise(query[row:stop], reference[first:last])
            hit = all_distances < squared_radius
            if skip_same:
                hit &= torch.arange(row, stop, device=query.device)[:, None] != column + first
            order = torch.where(hit, column, last - first).sort(dim=1).values[:, :kept]
            found = order < last - first
            nearest = all_distances.gather(1, order.clamp_max(last - first - 1))
            distances[row:stop, :kept] = torch.where(found, nearest, 0)
            indices[row:stop, :kept] = torch.where(found, order + (first - base), -1)
    return distances, indices


def _fake(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    index: torch.Tensor,
    squared_radius: float,
    k: int,
    skip_same: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (query.shape[0], k)
    return query.new_empty(shape), query.new_empty(shape, dtype=torch.int64)


ball_search = Op(
    "ball_search(Tensor query, Tensor reference, Tensor clouds, Tensor index, float squared_radius,"
    " int k, bool skip_same) -> (Tensor distances, Tensor indices)",
    reference=_reference,
    fake=_fake,
)


def _backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return (*_distance.gradient(ctx, grad, "squared"), None, None, None, None, None)


ball_search.gradient(_backward, _distance.setup_context)


def search(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    squared_radius: float,
    k: int,
    skip_same: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`ball_search` of rows [M, D] in rows [N, D] without an index of the caller's."""
    found: tuple[torch.Tensor, torch.Tensor] = ball_search(
        _inputs.computed(query),
        _inputs.computed(reference),
        clouds,
        reference.new_empty(0, dtype=torch.uint8),
        squared_radius,
        k,
        skip_same,
    )
    return found


def _nearest(
    query: torch.Tensor, ref: torch.Tensor, clouds: torch.Tensor, square: float, k: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The nearest `width` rows, those within the radius kept and padded to `k`."""
    distances, indices = knn.search(query, ref, clouds, width)
    hit = (indices >= 0) & (distances < square)
    pad = (0, k - width)
    return (
        torch.nn.functional.pad(torch.where(hit, distances, 0), pad),
        torch.nn.functional.pad(torch.where(hit, indices, -1), pad, value=-1),
    )


def ball_query(
    query: torch.Tensor,
    ref: torch.Tensor,
    radius: float,
    K: int,
    *,
    nearest: bool = False,
    repeat_first: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first K reference points within `radius` of each query, dense and batched.

    Args:
        query: (B, M, 3) floating, any strides.
        ref: (B, N, 3), same dtype and device.
        radius: finite and > 0.
        K: >= 0; may exceed N.
        nearest: keep the nearest K instead of the first K.
        repeat_first: pad with the first hit (index 0 at distance 0 where there is none).

    Returns:
        Squared distances (B, M, K), float32 (float64 for float64), 0 where padded;
        int64 indices (B, M, K) into `ref`, -1 where padded.
    """
    _inputs.points("query", query, 3, 3)
    _inputs.points("ref", ref, 3, 3)
    _inputs.alike("query", query, "ref", ref)
    square = _inputs.squared_radius("radius", radius, query.dtype, flat=False)
    _inputs.count("K", K, 0)
    _inputs.peopled("ref", ref)
    batch, queries, _ = query.shape
    clouds = _clouds.dense(batch, queries, ref.shape[1])
    rows = query.reshape(-1, 3), ref.reshape(-1, 3)
    if nearest:
        width = min(K, ref.shape[1])
        _inputs.count("K", width, 0, knn.LARGEST_K, "leave nearest out for more points")
        distances, indices = _nearest(*rows, clouds, square, K, width)
    else:
        distances, indices = search(*rows, clouds, square, K)
    if repeat_first:
        missing = indices < 0
        distances = torch.where(missing, distances[:, :1], distances)
        indices = torch.where(missing, indices[:, :1], indices).clamp_min(0)
    return distances.view(batch, queries, K), indices.view(batch, queries, K)
