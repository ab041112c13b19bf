"""`torchsparse.backbones.resnet`."""

from ...torchsparse.backbones.resnet import SparseResNet21D

__all__ = ["SparseResNet21D"]
