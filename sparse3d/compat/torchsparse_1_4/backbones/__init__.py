"""`torchsparse.backbones`."""

from ...torchsparse.backbones import SparseResNet21D, SparseResUNet42

__all__ = ["SparseResNet21D", "SparseResUNet42"]
