"""`torchsparse.utils.utils`."""

from . import make_ntuple

__all__ = ["make_ntuple"]
