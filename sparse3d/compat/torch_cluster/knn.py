"""torch_cluster.knn."""

from ...pointops.flat import knn, knn_graph

__all__ = ["knn", "knn_graph"]
