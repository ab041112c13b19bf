"""`spconv.pytorch.quantization.intrinsic.modules`: containers of what is computed in one pass."""

from ......nn.fused import (
    SpconvAddReLUNd,
    SpconvBnAddReLUNd,
    SpconvBnNd,
    SpconvBnReLUNd,
    SpconvReLUNd,
)

__all__ = ["SpconvAddReLUNd", "SpconvBnAddReLUNd", "SpconvBnNd", "SpconvBnReLUNd", "SpconvReLUNd"]
