"""pytorch3d.ops.knn."""

from __future__ import annotations

from typing import NamedTuple

import torch

from ...._check import same_device
from ....pointops import _inputs
from ....pointops._clouds import dense
from ....pointops.knn import search


class _KNN(NamedTuple):
    dists: torch.Tensor
    idx: torch.Tensor
    knn: torch.Tensor | None


def padded_pair(
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
    version: int = -1,
    return_nn: bool = False,
    return_sorted: bool = True,
) -> _KNN:
    """Squared (norm 2) or L1 distances, int64 indices, and the neighbours if `return_nn`.

    Distances and indices are 0 where a cloud has fewer than K points. `version` is accepted and
    results are sorted whatever `return_sorted` says.
    """
    if norm not in (1, 2):
        raise ValueError(f"norm must be 1 or 2, got {norm}")
    _inputs.count("K", K, 1)
    p1, p2, clouds = padded_pair(p1, p2, lengths1, lengths2)
    batch, queries, dim = p1.shape
    distances, indices = search(
        p1.reshape(-1, dim), p2.reshape(-1, dim), clouds, K, "l1" if norm == 1 else "squared"
    )
    distances = torch.where(indices >= 0, distances, 0).to(p1.dtype).view(batch, queries, K)
    indices = indices.clamp_min(0).view(batch, queries, K)
    near = knn_gather(p2, indices, lengths2) if return_nn else None
    return _KNN(distances, indices, near)


def knn_gather(
    x: torch.Tensor, idx: torch.Tensor, lengths: torch.Tensor | None = None
) -> torch.Tensor:
    """(N, M, U) at (N, L, K): (N, L, K, U), zeros in places k >= lengths."""
    _inputs.shaped("x", x, 3)
    # Of a cloud without points, `knn_points` returns zeros.
    _inputs.index("idx", idx, 3, max(x.shape[1], 1), pad=False)
    same_device(x=x, idx=idx)
    if x.shape[0] != idx.shape[0]:
        raise ValueError(f"idx must be of batch size {x.shape[0]} as x has, got {idx.shape[0]}")
    batch, size, channels = x.shape
    _, queries, k = idx.shape
    valid_rows = _inputs.lengths("lengths", lengths, batch, size, x.device)
    if size == 0:
        return x.new_zeros((batch, queries, k, channels))
    rows = x.gather(1, idx.long().reshape(batch, -1, 1).expand(-1, -1, channels))
    out = rows.view(batch, queries, k, channels)
    if lengths is None and size >= k:
        return out
    counts = torch.full((batch,), size) if valid_rows is None else valid_rows
    valid = (torch.arange(k) < counts[:, None]).to(x.device)
    return torch.where(valid[:, None, :, None], out, 0)
