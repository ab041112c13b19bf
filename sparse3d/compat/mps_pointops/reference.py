"""mps_pointops.reference: the definitions, on any device."""

from ...pointops.reference import ball_query, furthest_point_sample, knn

__all__ = ["ball_query", "furthest_point_sample", "knn"]
