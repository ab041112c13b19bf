"""`torchsparse.nn.functional.conv.hash.hash`."""

from ...hash import sphash

__all__ = ["sphash"]
