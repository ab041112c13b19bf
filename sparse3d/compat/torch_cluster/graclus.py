"""torch_cluster.graclus."""

from ...pointops import graclus_cluster

__all__ = ["graclus_cluster"]
