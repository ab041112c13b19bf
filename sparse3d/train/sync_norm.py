"""Batch norm over the rows of all processes, on any device.

`torch.nn.SyncBatchNorm` refuses CPU tensors; this one asks the process group for sums, so gloo on
CPU and NCCL on GPUs give the same result.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from sparse3d.nn import SparseBatchNorm
from sparse3d.tensor import SparseConvTensor

__all__ = ["SyncBatchNorm", "synchronise"]


class _Normalise(torch.autograd.Function):
    """``(x - mean) / sqrt(var + eps)`` with mean and variance over the rows of all processes."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        values = rows.float()
        sums = torch.cat([values.sum(0), values.new_tensor([float(len(rows))])])
        dist.all_reduce(sums)
        count = sums[-1:].clamp(min=1)
        mean = sums[:-1] / count
        centred = values - mean
        squares = (centred * centred).sum(0)
        dist.all_reduce(squares)
        var = squares / count
        unit = centred * torch.rsqrt(var + eps)
        ctx.save_for_backward(unit, var, count)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, var, count)
        return unit.to(rows.dtype), mean, var, count

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        unit, var, count = ctx.saved_tensors
        upstream = grads[0].float()
        sums = torch.stack([upstream.sum(0), (upstream * unit).sum(0)])
        dist.all_reduce(sums)
        inner = upstream - sums[0] / count - unit * (sums[1] / count)
        return (inner * torch.rsqrt(var + ctx.eps)).to(grads[0].dtype), None


class SyncBatchNorm(SparseBatchNorm):
    """`SparseBatchNorm` whose statistics in training are those of all processes.

    Parameters, buffers and their names are the same. In evaluation, or without a process group, it
    is `SparseBatchNorm`.
    """

    def forward(self, input: Any) -> Any:
        alone = not (dist.is_available() and dist.is_initialized())
        if alone or not self.training:
            return super().forward(input)
        if isinstance(input, SparseConvTensor):
            return input.replace_feature(self._normalised(input.features))
        return self._normalised(input)

    def _normalised(self, rows: torch.Tensor) -> torch.Tensor:
        unit, mean, var, count = _Normalise.apply(rows, self.eps)  # type: ignore[no-untyped-call]
        if self.track_running_stats and float(count) > 0:
            self._track(mean, var, count)
        if self.affine:
            unit = unit * self.weight.to(unit.dtype) + self.bias.to(unit.dtype)
        return unit  # type: ignore[no-any-return]

    def _track(self, mean: torch.Tensor, var: torch.Tensor, count: torch.Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            part = self.momentum
            if part is None:
                part = 1.0 / float(self.num_batches_tracked)
            unbiased = var * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean, part)
            self.running_var.lerp_(unbiased, part)


def synchronise(model: nn.Module) -> nn.Module:
    """Replace every `SparseBatchNorm` within by a `SyncBatchNorm` of the same state, in place."""
    for name, child in model.named_children():
        if type(child) is SparseBatchNorm:
            twin = SyncBatchNorm(
                child.num_features, child.eps, child.momentum, child.affine,
                child.track_running_stats,
            )  # fmt: skip
            twin.to(next(iter(child.state_dict().values())).device)
            twin.load_state_dict(child.state_dict())
            twin.train(child.training)
            setattr(model, name, twin)
        else:
            synchronise(child)
    return model
