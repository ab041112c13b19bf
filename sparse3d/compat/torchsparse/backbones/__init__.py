"""`torchsparse.backbones`."""

from .resnet import SparseResNet21D
from .unet import SparseResUNet42

__all__ = ["SparseResNet21D", "SparseResUNet42"]
