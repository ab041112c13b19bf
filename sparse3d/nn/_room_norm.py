"""Batch norm in training over the sites of a room, whose number the device alone knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ._room import Room

__all__ = ["room_norm"]


class _Normalize(torch.autograd.Function):
    """Normalise rows of which those beyond `count` are zero; also gives mean and variance."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        count: torch.Tensor,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if rows.is_cuda:
            mean, scale = torch.batch_norm_stats(rows, eps)
            var = scale.pow(-2) - eps
        else:
            mean, var = rows.float().mean(0), rows.float().var(0, unbiased=False)
        # Zero rows took part: sums over all rows, divided by the sites alone.
        more = rows.shape[0] / count
        square = (var + mean * mean) * more
        mean = mean * more
        var = (square - mean * mean).clamp_(min=0)
        scale = torch.rsqrt(var + eps)
        ctx.save_for_backward(rows, weight, mean, scale, count)
        ctx.mark_non_differentiable(mean, var)
        if rows.is_cuda:
            return torch.batch_norm_elemt(rows, weight, bias, mean, scale, eps), mean, var
        out = (rows.float() - mean) * (scale * weight) + bias
        return out.to(rows.dtype), mean, var

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        rows, weight, mean, scale, count = ctx.saved_tensors
        grad = grads[0].contiguous()
        if rows.is_cuda:
            sums = torch.batch_norm_backward_reduce(
                grad, rows, mean, scale, weight, True, True, True
            )
            to_rows = torch.batch_norm_backward_elemt(
                grad, rows, mean, scale, weight, sums[0], sums[1], count.int().view(1)
            )
            return to_rows, sums[2], sums[3], None, None
        up, centred = grad.float(), (rows.float() - mean) * scale
        to_weight, to_bias = (up * centred).sum(0), up.sum(0)
        to_rows = (up - to_bias / count - centred * (to_weight / count)) * (scale * weight)
        return to_rows.to(rows.dtype), to_weight, to_bias, None, None


def room_norm(norm: nn.BatchNorm1d, room: Room, features: torch.Tensor) -> torch.Tensor:
    """What `norm` gives in training for the sites of a room; other rows are anything."""
    count = room.count()
    rows = features
    if not room.has_zeros(features):
        rows = features.masked_fill(~room.used[:, None], 0)
    width = {"size": (norm.num_features,), "device": rows.device}
    weight = torch.ones(**width) if norm.weight is None else norm.weight
    bias = torch.zeros(**width) if norm.bias is None else norm.bias
    normalize: Callable[..., Any] = _Normalize.apply
    out, mean, var = normalize(rows, weight, bias, count, norm.eps)
    if norm.track_running_stats:
        _track(norm, mean, var * (count / (count - 1).clamp(min=1)))
    made: torch.Tensor = out
    return made


@torch.no_grad()
def _track(norm: nn.BatchNorm1d, mean: torch.Tensor, var: torch.Tensor) -> None:
    seen, means, spread = norm.num_batches_tracked, norm.running_mean, norm.running_var
    if seen is None or means is None or spread is None:
        return
    seen.add_(1)
    part: Any = norm.momentum
    if part is None:
        part = seen.to(mean.dtype).reciprocal()
    means.lerp_(mean.to(means.dtype), part)
    spread.lerp_(var.to(spread.dtype), part)
