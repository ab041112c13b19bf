"""pytorch3d.loss: chamfer_distance."""

from .chamfer import chamfer_distance

__all__ = ["chamfer_distance"]
