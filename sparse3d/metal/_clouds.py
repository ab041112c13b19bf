"""The table of clouds as kernels read it, and which points they take."""

from __future__ import annotations

import torch

from . import _shader

SIMDGROUPS = 4
"""Queries of a threadgroup at most, one a simdgroup."""


def float_points(points: torch.Tensor) -> bool:
    """Kernels take float32 points; half precision is widened before, float64 does not exist."""
    return points.dtype == torch.float32


def table(clouds: torch.Tensor, device: torch.device) -> torch.Tensor:
    """int32 on the device; row numbers must fit."""
    if clouds.numel():
        _shader.rows_fit("points", int(clouds.max()))
    return clouds.to(torch.int32).contiguous().to(device)
