"""pointops.interpolation."""

from ...pointops.pointcept import interpolation

__all__ = ["interpolation", "interpolation2"]

interpolation2 = interpolation
