"""mps_pointops.flat: clouds one after the other."""

from ...pointops.flat import fps, knn, knn_graph, radius, radius_graph

__all__ = ["fps", "knn", "knn_graph", "radius", "radius_graph"]
