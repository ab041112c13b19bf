"""mps_pointops.chamfer: chamfer_distance."""

from typing import Literal

from ...pointops import chamfer_distance

__all__ = ["BatchReduction", "PointReduction", "chamfer_distance"]

BatchReduction = Literal["mean", "sum"] | None
PointReduction = Literal["mean", "sum", "max"] | None
