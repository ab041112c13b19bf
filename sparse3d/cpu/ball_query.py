"""Ball query: box hierarchies or scans in order of rows, whichever is cheaper for the radius."""

from __future__ import annotations

import torch

from ..pointops.ball_query import ball_search
from ._library import DTYPES, address, call, path, threads
from ._points import given, table


@ball_search.kernel("cpu")
def _ball_search(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    index: torch.Tensor,
    squared_radius: float,
    k: int,
    skip_same: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    query, reference, rows = query.contiguous(), reference.contiguous(), table(clouds)
    distances = torch.empty((query.shape[0], k), dtype=query.dtype)
    indices = torch.empty((query.shape[0], k), dtype=torch.int64)
    call(
        "s3d_ball",
        DTYPES[query.dtype],
        address(query),
        query.shape[0],
        address(reference),
        query.shape[1],
        address(rows),
        len(rows),
        given(index),
        squared_radius,
        k,
        int(skip_same),
        threads(),
        path(),
        address(distances),
        address(indices),
    )
    return distances, indices
