"""Trilinear corners, interpolation and its gradient on Metal."""

from typing import Any

import torch

from ..ops.voxelize import interpolate, interpolate_grad, trilinear_map
from . import _shader, segment


def _takes_points(coords: torch.Tensor, table: torch.Tensor, points: torch.Tensor) -> bool:
    return _shader.takes(points)


def _takes(values: torch.Tensor, *_: Any) -> bool:
    return _shader.takes(values)


@trilinear_map.kernel("metal", "cuda", when=_takes_points)
def _map(
    coords: torch.Tensor, table: torch.Tensor, points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    q, columns = points.shape
    corners = 1 << (columns - 1)
    rows = torch.empty((q, corners), dtype=torch.int32, device=points.device)
    weights = points.new_empty((q, corners))
    element = _shader.element(points.dtype)
    kernels = _shader.library("voxelize", SP_COLS=columns, SP_ELEM=element)
    lists = (coords.contiguous(), table, points.contiguous(), rows, weights)
    _shader.each(kernels, "sp_trilinear", *lists, q, table.shape[0] - 1, threads=(corners, q))
    return rows, weights


@interpolate.kernel("metal", "cuda", when=_takes)
def _interpolate(features: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    (q, corners), channels = rows.shape, features.shape[1]
    out = features.new_zeros((q, channels))
    if features.shape[0] == 0 or out.numel() == 0:
        return out
    kernels = _shader.library("voxelize", SP_ELEM=_shader.element(features.dtype))
    lists = (features.contiguous(), rows.contiguous(), weights.float().contiguous(), out)
    _shader.each(kernels, "sp_interpolate", *lists, channels, q, corners, threads=(channels, q))
    return out


@interpolate_grad.kernel("metal", "cuda", when=_takes)
def _interpolate_grad(
    grad: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor, num: int
) -> torch.Tensor:
    if grad.numel() == 0 or rows.numel() == 0 or num == 0:
        return grad.new_zeros((num, grad.shape[1]))
    entries, corners = rows.numel(), rows.shape[1]
    _shader.rows_fit("points times corners", entries)
    ids = torch.empty(entries, dtype=torch.int32, device=grad.device)
    kernels = _shader.library("voxelize", SP_ELEM=_shader.element(grad.dtype))
    _shader.each(
        kernels, "sp_interpolate_ids", rows.contiguous(), ids, entries, num, threads=entries
    )
    factors = weights.float().contiguous()
    return segment.total(grad.contiguous(), segment.sort(ids, num), num, factors, corners)
