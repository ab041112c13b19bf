"""mps_pointops.pointcept: flat clouds with offsets."""

from ...pointops.pointcept import (
    farthest_point_sampling,
    grouping,
    interpolation,
    knn_query,
    knn_query_and_group,
)

__all__ = [
    "farthest_point_sampling",
    "grouping",
    "interpolation",
    "knn_query",
    "knn_query_and_group",
]
