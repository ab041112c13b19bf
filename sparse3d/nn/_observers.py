"""Observers of `torch.ao.quantization` that see sparse tensors by their features."""

from __future__ import annotations

from typing import Any

import torch
from torch.ao.quantization.fake_quantize import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    default_fused_per_channel_wt_fake_quant,
)
from torch.ao.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    default_per_channel_weight_observer,
)
from torch.ao.quantization.qconfig import QConfig

from ..tensor import SparseConvTensor

__all__ = [
    "SYMMETRIC",
    "SYMMETRIC_IN_TRAINING",
    "SparseFusedMovingAvgObsFakeQuantize",
    "SparseHistogramObserver",
    "SparseMinMaxObserver",
    "SparseMovingAvgObsFakeQuantize",
]


class _OnFeatures:
    def forward(self, input: Any) -> Any:
        observe = super().forward  # type: ignore[misc]
        if isinstance(input, SparseConvTensor):
            return input.replace_feature(observe(input.features))
        return observe(input)


class SparseFusedMovingAvgObsFakeQuantize(_OnFeatures, FusedMovingAvgObsFakeQuantize):
    """Rounds features to int8 and back in training, by moving extrema."""


class SparseMovingAvgObsFakeQuantize(_OnFeatures, FakeQuantize):
    """The same by any observer."""


class SparseHistogramObserver(_OnFeatures, HistogramObserver):
    """Watches the distribution of features."""


class SparseMinMaxObserver(_OnFeatures, MinMaxObserver):
    """Watches the extrema of features."""


_INT8: dict[str, Any] = {
    "quant_min": -128,
    "quant_max": 127,
    "dtype": torch.qint8,
    "reduce_range": False,
    "qscheme": torch.per_tensor_symmetric,
    "eps": 2**-12,
}
_TRAINED: Any = SparseFusedMovingAvgObsFakeQuantize
_CONFIG: Any = QConfig  # torch has no types for it
SYMMETRIC = _CONFIG(
    activation=SparseHistogramObserver.with_args(**_INT8),
    weight=default_per_channel_weight_observer,
)
SYMMETRIC_IN_TRAINING = _CONFIG(
    activation=_TRAINED.with_args(observer=MovingAverageMinMaxObserver, **_INT8),
    weight=default_fused_per_channel_wt_fake_quant,
)
