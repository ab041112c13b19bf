"""mps_pointops.pytorch3d: ball_query of padded clouds."""

from ..pytorch3d.ops.ball_query import ball_query
from ..pytorch3d.ops.knn import _KNN as KNN

__all__ = ["KNN", "ball_query"]
