"""`torchsparse.point_tensor`."""

from ..torchsparse.tensor import PointTensor

__all__ = ["PointTensor"]
