"""`torchsparse.nn.modules.norm`."""

from . import BatchNorm, GroupNorm

__all__ = ["BatchNorm", "GroupNorm"]
