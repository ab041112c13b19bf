"""torch_cluster.nearest."""

from ...pointops.flat import nearest

__all__ = ["nearest"]
