"""Stand-in for FlexGEMM 1.1.

Differences from the peer are listed in docs/migration/flex_gemm.md.
"""

from . import ops
from .ops.grid_sample import grid_sample_3d
from .ops.spconv import sparse_submanifold_conv3d

__version__ = "1.1.0"

# Files of the peer that are one module here.
_ALIASES = {
    "flex_gemm.ops.grid_sample.grid_sample": "ops.grid_sample",
    "flex_gemm.ops.spconv.sparse_conv3d": "ops.spconv",
    "flex_gemm.ops.spconv.submanifold_conv3d": "ops.spconv",
}

__all__ = ["__version__", "grid_sample_3d", "ops", "sparse_submanifold_conv3d"]
