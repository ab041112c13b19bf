"""`torchsparse.nn.modules.crop`."""

from . import SparseCrop

__all__ = ["SparseCrop"]
