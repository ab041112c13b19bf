"""pointops.sampling."""

from ...pointops.pointcept import farthest_point_sampling

__all__ = ["farthest_point_sampling", "furthestsampling"]

furthestsampling = farthest_point_sampling
