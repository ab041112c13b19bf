"""Stand-in for the part of cumm that spconv's users touch: arrays handed to voxel generators."""

from . import tensorview

__version__ = "0.8.2"
__all__ = ["__version__", "tensorview"]
