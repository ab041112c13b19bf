"""torch_cluster.grid."""

from ...pointops import grid_cluster

__all__ = ["grid_cluster"]
