"""Input channels of a segmentation network, by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from sparse3d.data.grid import Grid, represent, to_grid
from sparse3d.data.terrain import height_above_ground
from sparse3d.tensor import SparseConvTensor

__all__ = ["FEATURES", "point_features", "to_sparse"]

FEATURES = ("x", "y", "z", "remission", "dx", "dy", "dz", "height")
"""x, y, z in metres and remission are the point's own. dx, dy, dz place the point within its voxel,
from -0.5 to 0.5. height is metres above the estimated ground, clipped to [-2, 6] and divided by 3:
together they say nothing of where the sensor is mounted."""


def point_features(
    points: npt.NDArray[np.floating], names: Sequence[str], voxel_size: float, rounding: str
) -> npt.NDArray[np.float32]:
    """Float32 ``[N, C]``: the named channels of each point."""
    if not names:
        raise ValueError(f"names must be at least one of {FEATURES}, got none")
    if "remission" in names and points.shape[1] < 4:
        way_out = "leave 'remission' out, or give it as a fourth column"
        raise ValueError(f"points must have 4 columns, got {points.shape[1]}; {way_out}")
    columns: list[npt.NDArray[np.floating]] = []
    for name in names:
        if name in ("x", "y", "z", "remission"):
            columns.append(points[:, ("x", "y", "z", "remission").index(name)])
        elif name in ("dx", "dy", "dz"):
            scaled = points[:, ("dx", "dy", "dz").index(name)] / np.float32(voxel_size)
            middle = np.floor(scaled) + 0.5 if rounding == "floor" else np.rint(scaled)
            columns.append(scaled - middle)
        elif name == "height":
            columns.append(np.clip(height_above_ground(points), -2, 6) / 3)
        else:
            raise ValueError(f"names must come from {FEATURES}, got {name!r}")
    return np.stack(columns, axis=1).astype(np.float32)


def to_sparse(
    points: npt.NDArray[np.floating],
    *,
    voxel_size: float,
    features: Sequence[str],
    rounding: str = "floor",
    representative: str = "mean",
    dtype: str = "float32",
) -> tuple[SparseConvTensor, Grid]:
    """A scan as the network's input tensor, and the voxels that lead back to its points.

    The tensor has no grid size: a scan of one point then is as good as any, and no site is lost
    where a grid has an odd number of cells.
    """
    grid = to_grid(points, voxel_size, rounding=rounding, origin="min", dtype=dtype)
    values = represent(point_features(points, features, voxel_size, rounding), grid, representative)
    tensor = SparseConvTensor(
        torch.from_numpy(np.asarray(values, np.float32)),
        torch.from_numpy(grid.indices()),
        None,
        1,
        check=False,
    )
    return tensor, grid
