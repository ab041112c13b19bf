"""`torchsparse.nn.modules.crop`."""

from .pooling import SparseCrop

__all__ = ["SparseCrop"]
