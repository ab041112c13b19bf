"""`torchsparse.nn.functional.crop`."""

from .pooling import spcrop

__all__ = ["spcrop"]
