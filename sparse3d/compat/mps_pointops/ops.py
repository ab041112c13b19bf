"""mps_pointops.ops: sampling and neighbours of dense batches."""

from ...pointops import ball_query, furthest_point_sample, knn

__all__ = ["ball_query", "furthest_point_sample", "knn"]
