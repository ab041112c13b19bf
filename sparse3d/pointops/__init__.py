"""Point operators: contracts, references and public functions; backends attach their kernels.

Dense and batched, (B, N, 3): `furthest_point_sample`, `knn`, `ball_query`, `three_nn`,
`three_interpolate`, `gather`, `group`, `chamfer_distance`, `sinkhorn`, and the reusable
`SpatialIndex`. Padded, with lengths: `padded`. Flat, with batch vectors or ptr: `flat`; with
offsets: `pointcept`, `shell` and `attention`. Reductions: `scatter_*`, of runs: `segments`. Grids
and graphs: `grid_cluster`, `voxel_grid`, `graclus_cluster`, `random_walk`, `neighbor_sampler`.
Names, return order and index types are those of mps-pointops 1.0 where it has them.
"""

from __future__ import annotations

from . import attention, flat, padded, pointcept, segments, shell, voxel
from .ball_query import ball_query
from .chamfer import chamfer_distance
from .composite import (
    scatter_log_softmax,
    scatter_logsumexp,
    scatter_softmax,
    scatter_squares,
    scatter_std,
)
from .fps import furthest_point_sample
from .graph import graclus_cluster, neighbor_sampler, random_walk
from .grid import grid_cluster, voxel_grid
from .group import gather, group, group_offsets
from .index import SpatialIndex
from .interpolate import inverse_distance_weights, three_interpolate, three_nn
from .knn import knn
from .scatter import scatter_max, scatter_mean, scatter_min, scatter_mul, scatter_sum
from .sinkhorn import sinkhorn

from . import reference  # isort: skip  # stands on the functions above

__all__ = [
    "SpatialIndex",
    "attention",
    "ball_query",
    "chamfer_distance",
    "flat",
    "furthest_point_sample",
    "gather",
    "graclus_cluster",
    "grid_cluster",
    "group",
    "group_offsets",
    "inverse_distance_weights",
    "knn",
    "neighbor_sampler",
    "padded",
    "pointcept",
    "random_walk",
    "reference",
    "scatter_log_softmax",
    "scatter_logsumexp",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_mul",
    "scatter_softmax",
    "scatter_squares",
    "scatter_std",
    "scatter_sum",
    "segments",
    "shell",
    "sinkhorn",
    "three_interpolate",
    "three_nn",
    "voxel",
    "voxel_grid",
]
