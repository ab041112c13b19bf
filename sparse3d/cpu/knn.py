"""k nearest neighbours: box hierarchies in up to 3 dimensions, scans beyond."""

from __future__ import annotations

import torch

from ..pointops.knn import knn_search
from ._library import DTYPES, address, call, path, threads
from ._points import METRICS, given, table


@knn_search.kernel("cpu")
def _knn_search(
    query: torch.Tensor,
    reference: torch.Tensor,
    clouds: torch.Tensor,
    index: torch.Tensor,
    k: int,
    metric: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    query, reference, rows = query.contiguous(), reference.contiguous(), table(clouds)
    distances = torch.empty((query.shape[0], k), dtype=query.dtype)
    indices = torch.empty((query.shape[0], k), dtype=torch.int64)
    call(
        "s3d_knn",
        DTYPES[query.dtype],
        address(query),
        query.shape[0],
        address(reference),
        query.shape[1],
        address(rows),
        len(rows),
        given(index),
        k,
        METRICS[metric],
        threads(),
        path(),
        address(distances),
        address(indices),
    )
    return distances, indices
