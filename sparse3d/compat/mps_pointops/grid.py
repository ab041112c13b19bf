"""mps_pointops.grid: grid_cluster."""

from ...pointops import grid_cluster

__all__ = ["grid_cluster"]
