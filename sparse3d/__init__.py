"""Sparse 3D deep learning for PyTorch: the same numbers on Apple GPUs, CPUs and NVIDIA GPUs."""

from . import _interrupt  # noqa: F401, ahead of torch
from ._registry import BackendUnavailable, backends, strict
from ._version import __version__
from .kernel_map import Coordinates, KernelMap
from .nn import prepare
from .ops.voxelize import devoxelize, group_points, quantize, voxelize
from .tensor import SparseConvTensor, add, cat, coalesce, collate, decompose

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
    "prepare",
    "quantize",
    "strict",
    "voxelize",
]
