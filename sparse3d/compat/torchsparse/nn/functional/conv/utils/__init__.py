"""`torchsparse.nn.functional.conv.utils`."""

from .collections import AttributeDict

__all__ = ["AttributeDict"]
