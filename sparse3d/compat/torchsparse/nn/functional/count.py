"""`torchsparse.nn.functional.count`."""

from .hash import spcount

__all__ = ["spcount"]
