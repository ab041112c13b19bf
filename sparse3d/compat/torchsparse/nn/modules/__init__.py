"""`torchsparse.nn.modules`."""

from .activation import LeakyReLU, ReLU, SiLU
from .bev import ToBEVConvolution, ToBEVHeightCompression, ToBEVReduction, ToDenseBEVConvolution
from .conv import Conv3d
from .norm import BatchNorm, GroupNorm, InstanceNorm
from .pooling import GlobalAvgPool, GlobalMaxPool, SparseCrop

__all__ = [
    "BatchNorm",
    "Conv3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "InstanceNorm",
    "LeakyReLU",
    "ReLU",
    "SiLU",
    "SparseCrop",
    "ToBEVConvolution",
    "ToBEVHeightCompression",
    "ToBEVReduction",
    "ToDenseBEVConvolution",
]
