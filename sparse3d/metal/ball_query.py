"""Ball query on Metal: a simdgroup a query, points in ascending row until k are found."""

from __future__ import annotations

from typing import Any

import torch

from ..pointops.ball_query import ball_search
from . import _shader
from ._clouds import SIMDGROUPS, float_points, table


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
    kernels = _shader.library("ball_query")
    query, reference = query.contiguous(), reference.contiguous()
    longest = int((clouds[:, 3] - clouds[:, 2]).max())
    for first, last in _shader.spans(queries, longest * dim):
        _shader.groups(
            kernels,
            "sp_ball",
            query,
            reference,
            rows,
            distances,
            indices,
            len(clouds),
            dim,
            k,
            squared_radius,
            int(skip_same),
            first,
            last,
            count=(-(-(last - first) // SIMDGROUPS),),
            size=32 * SIMDGROUPS,
        )
    return distances, indices
