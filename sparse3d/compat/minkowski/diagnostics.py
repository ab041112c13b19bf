"""What the stand-in runs on."""

from __future__ import annotations

import platform

import torch

from ..._registry import backends

__all__ = ["parse_nvidia_smi", "print_diagnostics"]


def print_diagnostics() -> None:
    """Print versions and sparse3d's backends."""
    print(f"platform {platform.platform()}")  # noqa: T201
    print(f"python {platform.python_version()}, torch {torch.__version__}")  # noqa: T201
    print(f"CUDA {torch.version.cuda}")  # noqa: T201
    print("MinkowskiEngine: stand-in of sparse3d")  # noqa: T201
    print(backends())  # noqa: T201


def parse_nvidia_smi() -> None:
    """Print the GPUs that torch sees."""
    for index in range(torch.cuda.device_count()):
        print(torch.cuda.get_device_properties(index))  # noqa: T201
