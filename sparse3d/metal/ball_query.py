"""Ball query on Metal: a simdgroup a query, points in ascending row until k are found, or those
that an index leaves."""

from __future__ import annotations

from typing import Any

import torch

from ..pointops.ball_query import ball_search
from . import _shader
from . import index as spatial
from ._clouds import SIMDGROUPS, float_points, table
from .knn import slots

_MOST_INDEXED = 128
"""Hits of a query that an indexed search keeps in registers."""

_FIRST_ROWS = 2048
"""Rows looked at in order before the index is asked: a wide ball is full by then."""


def _takes(query: torch.Tensor, *_: Any) -> bool:
    return float_points(query)


@ball_search.kernel("metal", "cuda", when=_takes)
def _ball_search(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    index: torch.Tensor,
    squared_radius: float,
    k: int,
    skip_same: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    queries, dim = query.shape
    distances = torch.zeros((queries, k), dtype=query.dtype, device=query.device)
    indices = torch.full((queries, k), -1, dtype=torch.int64, device=query.device)
    if distances.numel() == 0 or len(clouds) == 0:
        return distances, indices
    rows = table(clouds, query.device)
    query, reference = query.contiguous(), reference.contiguous()
    indexed = k <= _MOST_INDEXED
    if indexed and not index.numel() and spatial.worth(clouds) and spatial.can(reference, clouds):
        index = spatial.build(reference, clouds)
    longest, name = int((clouds[:, 3] - clouds[:, 2]).max()), "sp_ball"
    kernels = _shader.library("ball_query")
    where: tuple[torch.Tensor, ...] = (query, reference, rows)
    if indexed and index.numel():
        name, longest = "sp_ball_index", spatial.OUTER + longest // 32
        kernels = _shader.library("ball_query", SP_SLOTS=slots(k), SP_FIRST_ROWS=_FIRST_ROWS)
        where = (*where, *spatial.opened(index, clouds, dim))
    rule = (len(clouds), dim, k, squared_radius, int(skip_same))
    arguments: tuple[_shader.Argument, ...]
    size = _shader.largest_group(query, kernels, name, 32 * SIMDGROUPS)
    for first, last in _shader.spans(queries, longest * dim):
        arguments = (*where, distances, indices, *rule, first, last)
        count = (-(-(last - first) // (size // 32)),)
        _shader.groups(kernels, name, *arguments, count=count, size=size)
    return distances, indices
