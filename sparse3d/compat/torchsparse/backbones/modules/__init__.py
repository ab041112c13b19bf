"""`torchsparse.backbones.modules`."""

from .blocks import SparseConvBlock, SparseConvTransposeBlock, SparseResBlock

__all__ = ["SparseConvBlock", "SparseConvTransposeBlock", "SparseResBlock"]
