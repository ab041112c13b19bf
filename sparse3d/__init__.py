"""Sparse 3D deep learning for PyTorch: the same numbers on Apple GPUs, CPUs and NVIDIA GPUs."""

from ._registry import BackendUnavailable, backends, strict
from .kernel_map import Coordinates, KernelMap
from .ops.voxelize import devoxelize, group_points, quantize, voxelize
from .tensor import SparseConvTensor, add, cat, coalesce, collate, decompose

__version__ = "0.1.0.dev0"

__all__ = [
    "BackendUnavailable",
    "Coordinates",
    "KernelMap",
    "SparseConvTensor",
    "__version__",
    "add",
    "backends",
    "cat",
    "coalesce",
    "collate",
    "decompose",
    "devoxelize",
    "group_points",
    "quantize",
    "strict",
    "voxelize",
]
