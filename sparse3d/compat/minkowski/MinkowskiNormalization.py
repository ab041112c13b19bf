"""Norms."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn

from ...nn.modules import SparseBatchNorm
from ...ops.segment import standardize_segments
from ._backend._C import CoordinateMapKey, PoolingMode
from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import Tensor

__all__ = [
    "MinkowskiBatchNorm",
    "MinkowskiInstanceNorm",
    "MinkowskiInstanceNormFunction",
    "MinkowskiStableInstanceNorm",
    "MinkowskiSyncBatchNorm",
]

T = TypeVar("T", bound=Tensor)


class MinkowskiBatchNorm(MinkowskiModuleBase):
    """Batch norm over all rows; `bn` holds the parameters of `torch.nn.BatchNorm1d`."""

    bn: Any

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        super().__init__()
        self.bn = SparseBatchNorm(
            num_features,
            eps=eps,
            momentum=momentum,
            affine=affine,
            track_running_stats=track_running_stats,
        )

    def forward(self, input: T) -> T:
        return input._like(self.bn(input.F))

    def __repr__(self) -> str:
        bn = self.bn
        return (
            f"{type(self).__name__}({bn.num_features}, eps={bn.eps}, momentum={bn.momentum}, "
            f"affine={bn.affine}, track_running_stats={bn.track_running_stats})"
        )


class MinkowskiSyncBatchNorm(MinkowskiBatchNorm):
    """Batch norm over the rows of all processes."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
    ) -> None:
        nn.Module.__init__(self)
        self.bn = nn.SyncBatchNorm(
            num_features,
            eps=eps,
            momentum=momentum,
            affine=affine,
            track_running_stats=track_running_stats,
            process_group=process_group,
        )

    @classmethod
    def convert_sync_batchnorm(cls, module: nn.Module, process_group: Any = None) -> nn.Module:
        """The module with every `MinkowskiBatchNorm` made a `MinkowskiSyncBatchNorm`, parameters
        shared."""
        made = module
        if isinstance(module, MinkowskiBatchNorm) and not isinstance(module, cls):
            bn = module.bn
            settings = (bn.eps, bn.momentum, bn.affine, bn.track_running_stats, process_group)
            made = cls(bn.num_features, *settings)
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                if getattr(bn, name) is not None:
                    setattr(made.bn, name, getattr(bn, name))
            made.train(module.training)
            return made
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class MinkowskiInstanceNormFunction:
    """`apply` normalises each sample's rows."""

    @staticmethod
    def apply(
        in_feat: torch.Tensor,
        in_coords_key: CoordinateMapKey,
        glob_coords_key: CoordinateMapKey | None = None,
        coords_manager: CoordinateManager | None = None,
        gpooling_mode: PoolingMode = PoolingMode.GLOBAL_AVG_POOLING_KERNEL,
    ) -> torch.Tensor:
        """Mean 0 and variance 1 in each sample and channel."""
        assert coords_manager is not None
        return _standardized(in_feat, in_coords_key, coords_manager, 1e-8)


def _standardized(
    features: torch.Tensor,
    key: CoordinateMapKey,
    manager: CoordinateManager,
    eps: float,
    **affine: torch.Tensor,
) -> torch.Tensor:
    size = manager.size(manager.origin())
    return standardize_segments(features, manager.batch_rows(key), size, eps, None, **affine)


class MinkowskiInstanceNorm(MinkowskiModuleBase):
    """Norm over each sample's rows.

    Args:
        num_features: C.
        dimension: accepted; 0.4's, which networks published then still name.
    """

    eps = 1e-8

    def __init__(self, num_features: int, dimension: int = -1) -> None:
        super().__init__()
        self.num_features = num_features
        self.weight = nn.Parameter(torch.ones(1, num_features))
        self.bias = nn.Parameter(torch.zeros(1, num_features))

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: SparseTensor) -> SparseTensor:
        key, manager = input.coordinate_map_key, input.coordinate_manager
        affine = {"weight": self.weight, "bias": self.bias}
        return input._like(_standardized(input.F, key, manager, self.eps, **affine))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(nchannels={self.num_features})"


class MinkowskiStableInstanceNorm(MinkowskiInstanceNorm):
    """Norm over each sample's rows, with a larger eps."""

    eps = 1e-6

    def forward(self, x: SparseTensor) -> SparseTensor:
        return super().forward(x)
