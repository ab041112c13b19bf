"""torch_cluster.rw."""

from ...pointops import random_walk

__all__ = ["random_walk"]
