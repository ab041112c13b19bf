"""`torchsparse.backbones.unet`."""

from ...torchsparse.backbones.unet import SparseResUNet42

__all__ = ["SparseResUNet42"]
