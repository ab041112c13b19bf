"""Distances, with the rounding that every backend repeats.

`d = (x0 - y0)^2`, then `d += (xi - yi)^2` for i = 1, 2, ... in order, each operation rounded on its
own in float32 (float64 for float64 inputs), nothing fused. For `l1` `|xi - yi|` takes the place of
the square; `euclidean` is the correctly rounded root of `squared`. Equal formulas and equal order
give equal bits, hence equal indices, on every backend.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sparse3d.ops.segment import segment_sum

from ._clouds import absolute

PAIRS_A_CHUNK = 1 << 22


def pairwise(query: torch.Tensor, reference: torch.Tensor, metric: str = "squared") -> torch.Tensor:
    """Distances [m, n] of rows [m, D] and [n, D]; `euclidean` gives the squares."""
    total: torch.Tensor | None = None
    for axis in range(query.shape[1]):
        difference = query[:, axis, None] - reference[None, :, axis]  # [m, n]
        term = difference.abs() if metric == "l1" else difference * difference
        total = term if total is None else total + term
    if total is None:
        raise ValueError("points must have at least one coordinate, got 0")
    return total


def root(squared: torch.Tensor) -> torch.Tensor:
    """Correctly rounded square root; torch's own is off by one ulp at places, in float64 too."""
    if squared.device.type == "mps":  # which has no float64
        return root(squared.cpu()).to(squared.device)
    if squared.dtype != torch.float64:
        return squared.double().sqrt().to(squared.dtype)
    if squared.device.type != "cpu":
        return squared.sqrt()
    return torch.from_numpy(np.sqrt(squared.numpy()))


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    """Save what the gradient of a search(query, reference, clouds, ...) needs."""
    query, reference, clouds = inputs[:3]
    ctx.save_for_backward(query, reference, output[1], clouds)
    ctx.mark_non_differentiable(output[1])


def gradient(
    ctx: Any, grad: torch.Tensor, metric: str
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of kept distances to query and reference; the choice of neighbours is constant.

    squared: 2 (x - y); euclidean: (x - y) / |x - y|, 0 where equal; l1: sign(x - y), 0 where equal.
    """
    query, reference, indices, clouds = ctx.saved_tensors
    rows = absolute(indices, clouds)  # [M, k]
    kept = rows >= 0
    safe = rows.clamp_min(0)
    if reference.shape[0] == 0:
        return torch.zeros_like(query), torch.zeros_like(reference)
    difference = query[:, None, :] - reference[safe]  # [M, k, D]
    if metric == "l1":
        slope = difference.sign()
    elif metric == "squared":
        slope = 2 * difference
    else:
        squared = (difference * difference).sum(-1, keepdim=True)
        slope = difference / torch.where(squared > 0, squared, 1).sqrt()
    flow = torch.where(kept, grad, 0)[..., None] * slope
    flow = torch.where(kept[..., None], flow, 0)
    to_query = flow.sum(1) if ctx.needs_input_grad[0] else None
    to_reference = None
    if ctx.needs_input_grad[1]:
        to_reference = -segment_sum(
            flow.reshape(-1, query.shape[1]), safe.reshape(-1), reference.shape[0]
        )
    return to_query, to_reference
