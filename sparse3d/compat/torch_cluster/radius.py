"""torch_cluster.radius."""

from ...pointops.flat import radius, radius_graph

__all__ = ["radius", "radius_graph"]
