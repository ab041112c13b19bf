"""Sparse 3D deep learning for PyTorch: the same numbers on Apple GPUs, CPUs and NVIDIA GPUs."""

from typing import TYPE_CHECKING

from . import _interrupt  # noqa: F401, ahead of torch
from ._lazy import submodules
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

if TYPE_CHECKING:
    from . import checkpoint as checkpoint
    from . import compat as compat
    from . import data as data
    from . import export as export
    from . import models as models
    from . import pointops as pointops
    from . import train as train
    from . import view as view
else:  # a checker would take any name for one of these
    _LATE = ("checkpoint", "compat", "data", "export", "models", "pointops", "train", "view")
    __getattr__, __dir__ = submodules(__name__, _LATE)
