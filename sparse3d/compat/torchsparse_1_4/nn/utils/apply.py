"""`torchsparse.nn.utils.apply`."""

from . import fapply

__all__ = ["fapply"]
