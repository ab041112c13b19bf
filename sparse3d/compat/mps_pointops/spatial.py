"""mps_pointops.spatial: SpatialIndex."""

from typing import Literal

from ...pointops import SpatialIndex

__all__ = ["SpatialBackend", "SpatialIndex"]

SpatialBackend = Literal["auto", "scan", "bvh"]
