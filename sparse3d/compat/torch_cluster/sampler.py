"""torch_cluster.sampler."""

from __future__ import annotations

import math

import torch


def neighbor_sampler(start: torch.Tensor, rowptr: torch.Tensor, size: float) -> torch.Tensor:
    """Edges sampled without replacement from each start node's row.

    Args:
        start: (S,) int64 nodes.
        rowptr: (N + 1,) int64 bounds of the rows.
        size: edges a node where > 1, else the share of its edges.

    Returns:
        int64 positions of edges, node by node.
    """
    if size <= 0:
        raise ValueError(f"size must be > 0, got {size}")
    picked = []
    for node in start.tolist():
        first, last = int(rowptr[node]), int(rowptr[node + 1])
        wanted = int(size) if size > 1 else math.ceil(size * (last - first))
        picked.append(torch.randperm(last - first)[:wanted] + first)
    empty = torch.empty(0, dtype=torch.int64)
    return torch.cat([empty, *picked]).to(start.device)
