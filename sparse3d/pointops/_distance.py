"""Distances, with the rounding that every backend repeats.

`d = (x0 - y0)^2`, then `d += (xi - yi)^2` for i = 1, 2, ... in order, each operation rounded on its
own in float32 (float64 for float64 inputs), nothing fused. For the L1 norm `|xi - yi|` takes the
place of the square. Equal formulas and equal order give equal bits, hence equal indices, on every
backend.
"""

from __future__ import annotations

from typing import Any

import torch

from sparse3d.ops.segment import segment_sum

from ._clouds import absolute

PAIRS_A_CHUNK = 1 << 22


def pairwise(query: torch.Tensor, reference: torch.Tensor, norm: int = 2) -> torch.Tensor:
    """Distances [m, n] (squared for norm 2) of rows [m, D] and [n, D]."""
    total: torch.Tensor | None = None
    for axis in range(query.shape[1]):
        difference = query[:, axis, None] - reference[None, :, axis]  # [m, n]
        term = difference.abs() if norm == 1 else difference * difference
        total = term if total is None else total + term
    if total is None:
        raise ValueError("points must have at least one coordinate, got 0")
    return total


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    """Save what the gradient of (distances, indices) = search(query, reference, clouds, ...) needs."""
    query, reference, clouds = inputs[:3]
    ctx.save_for_backward(query, reference, output[1], clouds)
    ctx.mark_non_differentiable(output[1])


def gradient(
    ctx: Any, grad: torch.Tensor, norm: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of kept distances to query and reference; the choice of neighbours is constant.

    norm 2: d|x - y|^2 = 2 (x - y); norm 1: sign(x - y), 0 where equal.
    """
    query, reference, indices, clouds = ctx.saved_tensors
    rows = absolute(indices, clouds)  # [M, k]
    kept = rows >= 0
    safe = rows.clamp_min(0)
    if reference.shape[0] == 0:
        return torch.zeros_like(query), torch.zeros_like(reference)
    difference = query[:, None, :] - reference[safe]  # [M, k, D]
    slope = difference.sign() if norm == 1 else 2 * difference
    flow = torch.where(kept, grad, 0)[..., None] * slope
    flow = torch.where(kept[..., None], flow, 0)
    to_query = flow.sum(1) if ctx.needs_input_grad[0] else None
    to_reference = None
    if ctx.needs_input_grad[1]:
        to_reference = -segment_sum(
            flow.reshape(-1, query.shape[1]), safe.reshape(-1), reference.shape[0]
        )
    return to_query, to_reference
