"""torch_cluster.sampler."""

from __future__ import annotations

import math

import torch

from ..._check import fail, tensor
from ...pointops import _inputs
from ...pointops._clouds import checked_pointer


def neighbor_sampler(start: torch.Tensor, rowptr: torch.Tensor, size: float) -> torch.Tensor:
    """Edges sampled without replacement from each start node's row.

    Args:
        start: (S,) int64 nodes.
        rowptr: (N + 1,) int64 bounds of the rows.
        size: edges a node where > 1, else the share of its edges.

    Returns:
        int64 positions of edges, node by node.
    """
    if not 0 < size < math.inf:
        fail("size", "finite and > 0", size)
    tensor("rowptr", rowptr, 1)
    edges = int(rowptr[-1]) if rowptr.numel() else 0
    bounds = checked_pointer("rowptr", rowptr, edges, start.device, of="edges", least=0).tolist()
    _inputs.index("start", start, 1, len(bounds) - 1, pad=False)
    picked = []
    for node in start.tolist():
        first, last = bounds[node], bounds[node + 1]
        wanted = int(size) if size > 1 else math.ceil(size * (last - first))
        picked.append(torch.randperm(last - first)[:wanted] + first)
    empty = torch.empty(0, dtype=torch.int64)
    return torch.cat([empty, *picked]).to(start.device)
