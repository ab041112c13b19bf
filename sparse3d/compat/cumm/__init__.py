"""Stand-in for the part of cumm that spconv's users touch: arrays handed to voxel generators, and
the enumerations that name layouts and algorithms. What makes kernels is refused when it is used."""

from . import constants, conv, dtypes, gemm, tensorview
from ._kernels import BELOW as _BELOW  # noqa: F401  (read by install)
from ._kernels import common, nvrtc

__version__ = "0.8.2"
__all__ = [
    "__version__",
    "common",
    "constants",
    "conv",
    "dtypes",
    "gemm",
    "nvrtc",
    "tensorview",
]
