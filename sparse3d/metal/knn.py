"""k nearest neighbours on Metal: a simdgroup a query, every point looked at or those that an index
leaves."""

from __future__ import annotations

from typing import Any

import torch

from ..pointops.knn import LARGEST_K, knn_search
from . import _shader
from . import index as spatial
from ._clouds import SIMDGROUPS, float_points, table

_METRICS = {"squared": 0, "euclidean": 1, "l1": 2}


def _takes(query: torch.Tensor, reference: torch.Tensor, *rest: Any) -> bool:
    return float_points(query) and rest[2] <= LARGEST_K


def slots(k: int) -> int:
    """Registers of a lane: a power of two, so that few kernels are compiled."""
    slots = 1
    while 32 * slots < k:
        slots *= 2
    return slots


@knn_search.kernel("metal", "cuda", when=_takes)
def _knn_search(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    index: torch.Tensor,
    k: int,
    metric: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    queries, dim = query.shape
    distances = torch.full((queries, k), float("inf"), dtype=query.dtype, device=query.device)
    indices = torch.full((queries, k), -1, dtype=torch.int64, device=query.device)
    if distances.numel() == 0 or len(clouds) == 0:
        return distances, indices
    rows = table(clouds, query.device)
    kernels = _shader.library("knn", SP_SLOTS=slots(k), SP_METRIC=_METRICS[metric])
    query, reference = query.contiguous(), reference.contiguous()
    if not index.numel() and spatial.worth(clouds) and spatial.can(reference, clouds):
        index = spatial.build(reference, clouds)
    longest, name = int((clouds[:, 3] - clouds[:, 2]).max()), "sp_knn"
    where: tuple[torch.Tensor, ...] = (query, reference, rows)
    if index.numel():
        name, longest = "sp_knn_index", spatial.OUTER + longest // 32
        where = (query, rows, *spatial.opened(index, clouds, dim))
    arguments: tuple[_shader.Argument, ...]
    size = _shader.largest_group(query, kernels, name, 32 * SIMDGROUPS)
    for first, last in _shader.spans(queries, longest * dim):
        arguments = (*where, distances, indices, len(clouds), dim, k, first, last)
        count = (-(-(last - first) // (size // 32)),)
        _shader.groups(kernels, name, *arguments, count=count, size=size)
    return distances, indices
