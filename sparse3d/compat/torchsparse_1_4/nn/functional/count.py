"""`torchsparse.nn.functional.count`."""

from . import spcount

__all__ = ["spcount"]
