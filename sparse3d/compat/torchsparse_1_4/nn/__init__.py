"""`torchsparse.nn` of version 1.4."""

from . import functional, modules, utils
from .modules import (
    BatchNorm,
    Conv3d,
    GlobalAvgPool,
    GlobalMaxPool,
    GroupNorm,
    LeakyReLU,
    ReLU,
    SparseCrop,
    ToBEVConvolution,
    ToBEVHeightCompression,
    ToBEVReduction,
    ToDenseBEVConvolution,
)

__all__ = [
    "BatchNorm",
    "Conv3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "LeakyReLU",
    "ReLU",
    "SparseCrop",
    "ToBEVConvolution",
    "ToBEVHeightCompression",
    "ToBEVReduction",
    "ToDenseBEVConvolution",
    "functional",
    "modules",
    "utils",
]
