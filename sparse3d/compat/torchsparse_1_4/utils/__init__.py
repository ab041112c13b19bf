"""`torchsparse.utils`."""

from ...torchsparse.utils import make_ntuple

__all__ = ["make_ntuple"]
