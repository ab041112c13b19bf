"""mps_pointops.pointnet2: three neighbours and their weighted mean."""

from ...pointops import three_interpolate, three_nn

__all__ = ["three_interpolate", "three_nn"]
