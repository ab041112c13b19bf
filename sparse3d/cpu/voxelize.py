"""Trilinear corners of points, interpolation and its gradient."""

from __future__ import annotations

import torch

from ..ops.voxelize import interpolate, interpolate_grad, trilinear_map
from ._library import DTYPES, address, call, threads


@trilinear_map.kernel("cpu")
def _map(
    coords: torch.Tensor, table: torch.Tensor, points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    coords, points = coords.contiguous(), points.contiguous()
    count, columns = points.shape
    rows = torch.empty((count, 2 ** (columns - 1)), dtype=torch.int32)
    weights = torch.empty(rows.shape, dtype=points.dtype)
    call(
        "s3d_trilinear_map",
        threads(),
        DTYPES[points.dtype],
        address(coords),
        coords.shape[0],
        columns - 1,
        address(table),
        address(points),
        count,
        address(rows),
        address(weights),
    )
    return rows, weights


@interpolate.kernel("cpu")
def _interpolate(features: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    features, rows, weights = features.contiguous(), rows.contiguous(), weights.contiguous()
    count, corners = rows.shape
    out = torch.empty((count, features.shape[1]), dtype=features.dtype)
    call(
        "s3d_interpolate",
        threads(),
        DTYPES[features.dtype],
        DTYPES[weights.dtype],
        address(features),
        features.shape[1],
        address(rows),
        address(weights),
        count,
        corners,
        address(out),
    )
    return out


@interpolate_grad.kernel("cpu")
def _interpolate_grad(
    grad: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor, num: int
) -> torch.Tensor:
    grad, rows, weights = grad.contiguous(), rows.contiguous(), weights.contiguous()
    count, corners = rows.shape
    out = torch.empty((num, grad.shape[1]), dtype=grad.dtype)
    call(
        "s3d_interpolate_grad",
        threads(),
        DTYPES[grad.dtype],
        DTYPES[weights.dtype],
        address(grad),
        grad.shape[1],
        address(rows),
        address(weights),
        count,
        corners,
        num,
        address(out),
    )
    return out
