"""`flex_gemm.ops`."""

from . import grid_sample, serialize, spconv

__all__ = ["grid_sample", "serialize", "spconv"]
