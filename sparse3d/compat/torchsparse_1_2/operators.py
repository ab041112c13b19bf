"""Joins."""

from ..torchsparse.operators import cat

__all__ = ["cat"]
