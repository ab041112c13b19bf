"""`torchsparse.nn`."""

from . import functional, modules, utils
from .modules.activation import LeakyReLU, ReLU, SiLU
from .modules.bev import (
    ToBEVConvolution,
    ToBEVHeightCompression,
    ToBEVReduction,
    ToDenseBEVConvolution,
)
from .modules.conv import Conv3d
from .modules.norm import BatchNorm, GroupNorm, InstanceNorm
from .modules.pooling import GlobalAvgPool, GlobalMaxPool, SparseCrop

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
    "functional",
    "modules",
    "utils",
]
