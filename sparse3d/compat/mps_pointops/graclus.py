"""mps_pointops.graclus: graclus_cluster."""

from ...pointops import graclus_cluster

__all__ = ["graclus_cluster"]
