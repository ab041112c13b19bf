"""k nearest neighbours.

Meaning: for each query the k reference points of its own cloud at the smallest distance.
Formula: `d(q, p) = sum_i (q_i - p_i)^2` in float32, in the order and rounding of `_distance`.
Order and ties: ascending `(d, index)`: equal float32 distances are ordered by index.
Padding: none natively, k > N is a ValueError. `knn_search` gives index -1 and distance +inf.
Accumulation: float32 for float16, bfloat16 and float32; float64 for float64.
Gradient: none through `knn` (its distances are Euclidean, whose slope at 0 does not exist);
    `knn_search` (metric `squared`, `euclidean` or `l1`) has a gradient to both clouds.
Determinism: same bytes on every backend and with any number of threads.
Errors: NaN or infinite points, reference clouds without points, k outside [0, N], clouds that
differ in device, dtype, batch or D. No queries give no neighbours.

Example:
    >>> import torch
    >>> from sparse3d.pointops import knn
    >>> ref = torch.tensor([[[0.0, 0, 0], [1, 0, 0], [4, 0, 0]]])
    >>> distance, index = knn(torch.tensor([[[0.75, 0, 0]]]), ref, 2)
    >>> distance.tolist(), index.tolist()
    ([[[0.25, 0.75]]], [[[1, 0]]])
"""

from __future__ import annotations

from typing import Any

import torch

from sparse3d._registry import Op

from . import _clouds, _distance, _inputs

LARGEST_K = 1024


def _reference(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    index: torch.Tensor,
    k: int,
    metric: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sort all distances of a cloud, stably, and keep the first k."""
    distances = query.new_full((query.shape[0], k), float("inf"))
    indices = query.new_full((query.shape[0], k), -1, dtype=torch.int64)
    for begin, end, first, last, base in clouds.tolist():
        kept = min(k, last - first)
        if kept == 0:
            continue
        step = max(1, _distance.PAIRS_A_CHUNK // (last - first))
        for row in range(begin, end, step):
            stop = min(row + step, end)
            all_distances = _distance.pairwise(query[row:stop], reference[first:last], metric)
            ordered, order = all_distances.sort(dim=1, stable=True)
            distances[row:stop, :kept] = ordered[:, :kept]
            indices[row:stop, :kept] = order[:, :kept] + (first - base)
    return _distance.root(distances) if metric == "euclidean" else distances, indices


def _fake(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    index: torch.Tensor,
    k: int,
    metric: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (query.shape[0], k)
    return query.new_empty(shape), query.new_empty(shape, dtype=torch.int64)


knn_search = Op(
    "knn_search(Tensor query, Tensor reference, Tensor clouds, Tensor index, int k, str metric)"
    " -> (Tensor distances, Tensor indices)",
    reference=_reference,
    fake=_fake,
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    _distance.setup_context(ctx, inputs, output)
    ctx.metric = inputs[5]


def _backward(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return (*_distance.gradient(ctx, grad, ctx.metric), None, None, None, None)


knn_search.gradient(_backward, _setup)


def search(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    k: int,
    metric: str = "squared",
) -> tuple[torch.Tensor, torch.Tensor]:
    """`knn_search` of rows [M, D] in rows [N, D] without an index of the caller's."""
    found: tuple[torch.Tensor, torch.Tensor] = knn_search(
        _inputs.computed(query),
        _inputs.computed(reference),
        clouds,
        reference.new_empty(0, dtype=torch.uint8),
        k,
        metric,
    )
    return found


def knn(query: torch.Tensor, ref: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k nearest reference points of each query, dense and batched.

    Args:
        query: (B, M, D) floating, D >= 1, any strides.
        ref: (B, N, D), same dtype and device.
        k: 0 <= k <= min(N, 1024).

    Returns:
        Euclidean distances (B, M, k), ascending, float32 (float64 for float64), no gradient;
        int64 indices (B, M, k) into `ref`.
    """
    _inputs.points("query", query, 3)
    _inputs.points("ref", ref, 3)
    _inputs.alike("query", query, "ref", ref)
    _inputs.peopled("ref", ref)
    batch, queries, dim = query.shape
    references = ref.shape[1]
    _inputs.count("k", k, 0)
    few = references < LARGEST_K
    way_out = "ref has too few points for a larger k" if few else "search in parts for a larger k"
    _inputs.count("k", k, 0, min(references, LARGEST_K), way_out)
    distances, indices = search(
        query.detach().reshape(-1, dim),
        ref.detach().reshape(-1, dim),
        _clouds.dense(batch, queries, references),
        k,
        "euclidean",
    )
    return distances.view(batch, queries, k), indices.view(batch, queries, k)
