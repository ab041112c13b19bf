"""Weighted sums of three columns on Metal."""

from __future__ import annotations

from typing import Any

import torch

from ..pointops.interpolate import interpolate_columns
from . import _shader


def _takes(features: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(features)


@interpolate_columns.kernel("metal", "cuda", when=_takes)
def _interpolate_columns(
    features: torch.Tensor, idx: torch.Tensor, weight: torch.Tensor
) -> torch.Tensor:
    batch, channels, columns = features.shape
    places, lines = idx.shape[1], batch * channels
    out = features.new_empty((batch, channels, places))
    kernels = _shader.library("group", SP_ELEM=_shader.element(features.dtype))
    lists = (features.contiguous(), idx.contiguous(), weight.contiguous(), out)
    shape = (channels, columns, places, lines)
    _shader.each(kernels, "sp_interpolate_columns", *lists, *shape, threads=(places, lines))
    return out
