"""`torchsparse.backbones.modules.blocks`."""

from . import SparseConvBlock, SparseConvTransposeBlock, SparseResBlock

__all__ = ["SparseConvBlock", "SparseConvTransposeBlock", "SparseResBlock"]
