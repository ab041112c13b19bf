"""Stand-in for mps-pointops 1.0: the same names on any device.

| name | status | difference |
|---|---|---|
| furthest_point_sample, knn, ball_query, three_nn, three_interpolate | same | any float dtype |
| chamfer_distance, SpatialIndex, flat, reference, voxel | same | |
| grid, graclus, nearest, random_walk, pointcept, pytorch3d | same | whole operators, not subsets |
| pyg.register_mps | same | all seven point operators |
| compat.install | same | whole stand-ins; returns top-level names |

docs/migration/mps_pointops.md has every name.
"""

from . import flat, reference
from .chamfer import chamfer_distance
from .ops import ball_query, furthest_point_sample, knn
from .pointnet2 import three_interpolate, three_nn
from .spatial import SpatialIndex

__version__ = "1.0.0"

__all__ = [
    "SpatialIndex",
    "__version__",
    "ball_query",
    "chamfer_distance",
    "flat",
    "furthest_point_sample",
    "knn",
    "reference",
    "three_interpolate",
    "three_nn",
]
