"""`torchsparse.nn.functional.query`."""

from .hash import sphashquery

__all__ = ["sphashquery"]
