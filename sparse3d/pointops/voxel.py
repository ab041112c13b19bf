"""Compact voxels of a batch of clouds, and their mean positions and features.

Meaning: `voxelize` numbers the occupied cells of a grid; `voxel_downsample` averages in them.
Formula: `cell_i = floor((pos_i - start_i) / size_i)` in float32 (float64 for float64), start by
default the smallest position of the whole batch. Points outside `[start, end]` are a ValueError.
Order: voxels ascending by `(batch, cell_0, ..., cell_{D-1})`; points of a voxel in input order.
Accumulation: sums in ascending order of points, float32 (float64 for float64).
Gradient: means and sums to positions and features; the cells none.
Empty input: no voxels.
Errors: size <= 0, unsorted batch vectors, NaN or infinite positions or corners, cells beyond 2^31.

Example:
    >>> import torch
    >>> from sparse3d.pointops.voxel import voxelize
    >>> voxelize(torch.tensor([[0.5], [2.5], [0.1]]), 1.0, start=0.0).inverse.tolist()
    [0, 1, 0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from sparse3d._check import fail
from sparse3d.ops.coordinates import unique_sorted
from sparse3d.ops.order import count_ids, order_keys, running_sum

from . import _clouds, _inputs
from .grid import Bound, axis_values, corner
from .scatter import scatter_mean, scatter_sum


@dataclass(frozen=True)
class Voxelization:
    """Occupied voxels with maps both ways.

    Rows ascend by `(batch, *voxel_coords)`; `inverse[i]` is the row of point i; the points of row v
    are `point_order[ptr[v]:ptr[v + 1]]`, in input order.
    """

    voxel_coords: torch.Tensor
    batch: torch.Tensor
    inverse: torch.Tensor
    counts: torch.Tensor
    point_order: torch.Tensor
    ptr: torch.Tensor


@dataclass(frozen=True)
class VoxelDownsample:
    """Voxels, their mean positions [V, D] and reduced features [V, C] (None without features)."""

    voxels: Voxelization
    pos: torch.Tensor
    features: torch.Tensor | None


def voxelize(
    pos: torch.Tensor,
    size: Bound,
    batch: torch.Tensor | None = None,
    *,
    start: Bound | None = None,
    end: Bound | None = None,
    ptr: torch.Tensor | Sequence[int] | None = None,
) -> Voxelization:
    """Occupied voxels.

    Args:
        pos: (N, D) floating.
        size: voxel size, a number or one an axis.
        batch: sorted batch vector, one cloud where None.
        start: corners of the grid; the extent of all points where None.
        end: as `start`.
        ptr: bounds [B + 1] of the clouds, in place of `batch`.

    Returns:
        `Voxelization`, all int64.
    """
    _inputs.points("pos", pos, 2)
    wide = pos.detach() if pos.dtype == torch.float64 else pos.detach().float()
    sizes = axis_values("size", size, wide)
    if not bool((sizes > 0).all() & sizes.isfinite().all()):
        fail("size", "finite and > 0", sizes.tolist())
    rows = pos.shape[0]
    if ptr is not None:
        ids = _clouds.ids_of_pointer(ptr, batch, rows, pos.device)
    elif batch is None:
        ids = torch.zeros(rows, dtype=torch.int64, device=pos.device)
    else:
        _clouds.pointer("batch", rows, batch, None, pos.device)
        ids = batch.long()
    plain = pos.detach()
    if start is None:
        low = plain.amin(0) if rows else plain.new_zeros(pos.shape[1])
    else:
        low = corner("start", start, pos)
    if rows and bool((plain < low).any()):
        fail("pos", ">= start", "points below it", "lower start")
    if end is not None and bool((plain > corner("end", end, pos)).any()):
        fail("pos", "<= end", "points above it", "raise end")
    cells = ((wide - low.to(wide.dtype)) / sizes).floor()
    if rows and float(cells.max()) >= 2.0**31:
        fail("size", "large enough for cell numbers below 2^31", sizes.tolist())
    keys = torch.cat([ids[:, None], cells.long()], 1)
    if keys.shape[1] <= 5:
        first, inverse = unique_sorted(keys.int())
        voxels = keys[first]
    else:
        voxels, inverse = torch.unique(keys, dim=0, return_inverse=True)
    counts = count_ids(inverse, voxels.shape[0])
    return Voxelization(
        voxel_coords=voxels[:, 1:],
        batch=voxels[:, 0],
        inverse=inverse,
        counts=counts,
        point_order=order_keys(inverse),
        ptr=torch.cat([counts.new_zeros(1), running_sum(counts)]),
    )


def voxel_downsample(
    pos: torch.Tensor,
    size: Bound,
    batch: torch.Tensor | None = None,
    features: torch.Tensor | None = None,
    *,
    start: Bound | None = None,
    end: Bound | None = None,
    feature_reduce: str = "mean",
    pool_backend: str = "index_add",
    ptr: torch.Tensor | Sequence[int] | None = None,
) -> VoxelDownsample:
    """Mean position and mean or summed features of each voxel.

    Args:
        pos: as `voxelize`.
        size: as `voxelize`.
        batch: as `voxelize`.
        start: as `voxelize`.
        end: as `voxelize`.
        features: (N, C) floating.
        feature_reduce: `mean` or `sum`.
        pool_backend: `index_add` or `fused_csr`; accepted by name, both give the same here.
        ptr: as `voxelize`.

    Returns:
        `VoxelDownsample`.
    """
    if feature_reduce not in ("mean", "sum"):
        fail("feature_reduce", "'mean' or 'sum'", repr(feature_reduce))
    if pool_backend not in ("index_add", "fused_csr"):
        fail("pool_backend", "'index_add' or 'fused_csr'", repr(pool_backend))
    voxels = voxelize(pos, size, batch, start=start, end=end, ptr=ptr)
    rows = voxels.counts.numel()
    pooled = None
    if features is not None:
        if features.shape[0] != pos.shape[0]:
            fail("features", f"of {pos.shape[0]} rows as pos has", features.shape[0])
        if feature_reduce == "mean":
            floating = features if features.is_floating_point() else features.to(pos.dtype)
            pooled = scatter_mean(floating, voxels.inverse, 0, rows)
        else:
            pooled = scatter_sum(features, voxels.inverse, 0, rows)
    return VoxelDownsample(voxels, scatter_mean(pos, voxels.inverse, 0, rows), pooled)
