"""mps_pointops.nearest: the nearest row of another cloud."""

from ...pointops.flat import nearest

__all__ = ["nearest"]
