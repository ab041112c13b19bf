"""Graclus matching and random walks."""

from __future__ import annotations

import torch

from ..pointops.graph import graclus, walk
from ._library import address, call, threads


@graclus.kernel("cpu")
def _graclus(
    rowptr: torch.Tensor, col: torch.Tensor, weight: torch.Tensor, order: torch.Tensor
) -> torch.Tensor:
    rowptr, col, order = (t.long().contiguous() for t in (rowptr, col, order))
    weight = weight.double().contiguous()
    mate = torch.empty(order.shape, dtype=torch.int64)
    call(
        "s3d_graclus",
        address(rowptr),
        address(col),
        address(weight) if weight.numel() else None,
        address(order),
        order.numel(),
        address(mate),
    )
    return mate


@walk.kernel("cpu")
def _walk(
    rowptr: torch.Tensor,
    col: torch.Tensor,
    start: torch.Tensor,
    uniform: torch.Tensor,
    walk_length: int,
    p: float,
    q: float,
    seed: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    rowptr, col, start = (t.long().contiguous() for t in (rowptr, col, start))
    uniform = uniform.float().contiguous()
    nodes = torch.empty((start.numel(), walk_length + 1), dtype=torch.int64)
    edges = torch.empty((start.numel(), walk_length), dtype=torch.int64)
    call(
        "s3d_random_walk",
        address(rowptr),
        address(col),
        address(start),
        address(uniform) if p == q == 1.0 else None,
        start.numel(),
        walk_length,
        p,
        q,
        seed,
        threads(),
        address(nodes),
        address(edges),
    )
    return nodes, edges
