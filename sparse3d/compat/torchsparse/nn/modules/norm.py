"""Norms."""

from __future__ import annotations

from typing import Any

from torch import nn

from .....nn.modules import normalize_rows
from .....ops.norm import batch_norm
from .....ops.segment import standardize_segments
from ..utils.apply import fapply

__all__ = ["BatchNorm", "GroupNorm", "InstanceNorm"]


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over all rows."""

    def forward(self, input: Any) -> Any:
        return fapply(input, lambda feats: normalize_rows(self, feats))


def _by_sample(input: Any, groups: int | None, eps: float, weight: Any, bias: Any) -> Any:
    sites = input.sites()
    batch = sites.indices[:, 0].long()
    affine = {"groups": groups, "weight": weight, "bias": bias}
    return input.like(standardize_segments(input.feats, batch, sites.batch_size, eps, **affine))


class GroupNorm(nn.GroupNorm):
    """Group norm over each sample's rows."""

    def forward(self, input: Any) -> Any:
        return _by_sample(input, self.num_groups, self.eps, self.weight, self.bias)


class InstanceNorm(nn.InstanceNorm1d):
    """Norm of each channel over each sample's rows; running statistics are those of torch."""

    def forward(self, input: Any) -> Any:
        if self.training or not self.track_running_stats:
            return _by_sample(input, None, self.eps, self.weight, self.bias)
        kept = self.running_mean, self.running_var, self.weight, self.bias
        return fapply(input, lambda feats: batch_norm(feats, *kept, eps=self.eps))
