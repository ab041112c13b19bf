"""`torchsparse.nn.functional.hash`."""

from . import sphash

__all__ = ["sphash"]
