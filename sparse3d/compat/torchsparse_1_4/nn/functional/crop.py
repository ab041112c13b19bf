"""`torchsparse.nn.functional.crop`."""

from . import spcrop

__all__ = ["spcrop"]
