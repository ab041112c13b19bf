"""`torchsparse.nn.functional.query`."""

from . import sphashquery

__all__ = ["sphashquery"]
