"""mps_pointops.random_walk: walks along edges."""

from ...pointops import random_walk

__all__ = ["random_walk"]
