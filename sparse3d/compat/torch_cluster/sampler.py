"""torch_cluster.sampler."""

from ...pointops.graph import neighbor_sampler

__all__ = ["neighbor_sampler"]
