"""`torchsparse.nn` before version 1.4."""

from . import functional, modules
from .modules import (
    BatchNorm,
    Conv3d,
    GlobalAveragePooling,
    GlobalMaxPooling,
    GroupNorm,
    LeakyReLU,
    ReLU,
    SparseCrop,
    ToBEVConvolution,
    ToBEVReduction,
    ToDenseBEVConvolution,
)

__all__ = [
    "BatchNorm",
    "Conv3d",
    "GlobalAveragePooling",
    "GlobalMaxPooling",
    "GroupNorm",
    "LeakyReLU",
    "ReLU",
    "SparseCrop",
    "ToBEVConvolution",
    "ToBEVReduction",
    "ToDenseBEVConvolution",
    "functional",
    "modules",
]
