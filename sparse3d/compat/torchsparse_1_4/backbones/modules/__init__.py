"""`torchsparse.backbones.modules`."""

from ....torchsparse.backbones.modules import (
    SparseConvBlock,
    SparseConvTransposeBlock,
    SparseResBlock,
)

__all__ = ["SparseConvBlock", "SparseConvTransposeBlock", "SparseResBlock"]
