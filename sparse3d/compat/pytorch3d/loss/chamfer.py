"""pytorch3d.loss.chamfer."""

from __future__ import annotations

from typing import Any

import torch

from ....pointops import chamfer_distance as _chamfer_distance
from ....pointops.chamfer import Loss


def _unpack(
    cloud: Any, lengths: torch.Tensor | None, normals: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Tensors of a `Pointclouds` object; tensors as they are."""
    if hasattr(cloud, "points_padded"):
        return cloud.points_padded(), cloud.num_points_per_cloud(), cloud.normals_padded()
    return cloud, lengths, normals


def chamfer_distance(
    x: Any,
    y: Any,
    x_lengths: torch.Tensor | None = None,
    y_lengths: torch.Tensor | None = None,
    x_normals: torch.Tensor | None = None,
    y_normals: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    batch_reduction: str | None = "mean",
    point_reduction: str | None = "mean",
    norm: int = 2,
    single_directional: bool = False,
    abs_cosine: bool = True,
) -> tuple[Loss, Loss | None]:
    """Chamfer distance; tensors or objects with `points_padded()`. See `pointops.chamfer`."""
    x, x_lengths, x_normals = _unpack(x, x_lengths, x_normals)
    y, y_lengths, y_normals = _unpack(y, y_lengths, y_normals)
    return _chamfer_distance(
        x,
        y,
        x_lengths,
        y_lengths,
        x_normals,
        y_normals,
        weights,
        batch_reduction,
        point_reduction,
        norm,
        single_directional,
        abs_cosine,
    )
