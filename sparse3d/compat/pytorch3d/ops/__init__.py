"""pytorch3d.ops: neighbours and farthest points of padded clouds."""

from .ball_query import ball_query
from .knn import knn_gather, knn_points
from .sample_farthest_points import sample_farthest_points
from .utils import masked_gather

__all__ = ["ball_query", "knn_gather", "knn_points", "masked_gather", "sample_farthest_points"]
