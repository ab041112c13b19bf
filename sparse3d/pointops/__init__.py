"""Point operators: contracts, references and public functions; backends attach their kernels.

Dense and batched, (B, N, 3): `furthest_point_sample`, `knn`, `ball_query`, `three_nn`,
`three_interpolate`, `gather`, `group`, `chamfer_distance`, `sinkhorn`, and the reusable
`SpatialIndex`. Flat, with batch vectors or ptr: `flat`. Reductions: `scatter_*`. Grids and graphs:
`grid_cluster`, `voxel_grid`, `graclus_cluster`, `random_walk`. Names, return order and index types
are those of mps-pointops 1.0.
"""

from __future__ import annotations

from . import flat, pointcept, voxel
from .ball_query import ball_query
from .chamfer import chamfer_distance
from .fps import furthest_point_sample
from .graph import graclus_cluster, random_walk
from .grid import grid_cluster, voxel_grid
from .group import gather, group
from .index import SpatialIndex
from .interpolate import three_interpolate, three_nn
from .knn import knn
from .scatter import scatter_max, scatter_mean, scatter_min, scatter_sum
from .sinkhorn import sinkhorn

from . import reference  # isort: skip  # stands on the functions above

__all__ = [
    "SpatialIndex",
    "ball_query",
    "chamfer_distance",
    "flat",
    "furthest_point_sample",
    "gather",
    "graclus_cluster",
    "grid_cluster",
    "group",
    "knn",
    "pointcept",
    "random_walk",
    "reference",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_sum",
    "sinkhorn",
    "three_interpolate",
    "three_nn",
    "voxel",
    "voxel_grid",
]
