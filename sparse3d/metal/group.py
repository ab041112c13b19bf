"""Gather columns of channel-first maps on Metal."""

from __future__ import annotations

from typing import Any

import torch

from ..pointops.group import gather_columns
from . import _shader


def _takes(features: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(features)


@gather_columns.kernel("metal", "cuda", when=_takes)
def _gather_columns(features: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    batch, channels, columns = features.shape
    places, lines = idx.shape[1], batch * channels
    out = features.new_empty((batch, channels, places))
    kernels = _shader.library("group", SP_ELEM=_shader.element(features.dtype))
    arguments = (features.contiguous(), idx.contiguous(), out, channels, columns, places, lines)
    _shader.each(kernels, "sp_gather_columns", *arguments, threads=(places, lines))
    return out
