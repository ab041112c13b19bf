"""`torchsparse.nn.functional.voxelize`."""

from . import spvoxelize

__all__ = ["spvoxelize"]
