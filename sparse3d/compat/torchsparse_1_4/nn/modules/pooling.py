"""`torchsparse.nn.modules.pooling`."""

from . import GlobalAvgPool, GlobalMaxPool

__all__ = ["GlobalAvgPool", "GlobalMaxPool"]
