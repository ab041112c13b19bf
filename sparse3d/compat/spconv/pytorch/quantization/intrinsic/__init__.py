"""`spconv.pytorch.quantization.intrinsic`."""

from .modules import SpconvAddReLUNd, SpconvBnAddReLUNd, SpconvBnNd, SpconvBnReLUNd, SpconvReLUNd

__all__ = ["SpconvAddReLUNd", "SpconvBnAddReLUNd", "SpconvBnNd", "SpconvBnReLUNd", "SpconvReLUNd"]
