"""The CUDA side of `sparse3d.metal._shader`: the same kernels, compiled by NVRTC."""

import sys

import torch

from .._registry import BackendUnavailable


def require() -> None:
    """Raises BackendUnavailable where no NVIDIA GPU can be used."""
    if sys.platform != "linux":
        raise BackendUnavailable(f"needs Linux, got {sys.platform}")
    if torch.version.cuda is None:
        raise BackendUnavailable(f"this torch is built without CUDA: {torch.__version__}")
    if not torch.cuda.is_available():
        raise BackendUnavailable("no NVIDIA GPU: torch.cuda.is_available() is False")
