"""Runs unmodified .metal kernels and unmodified launch code on CPU tensors. See README.md."""

from .build import fronts
from .device import Kernel, Library, Options, compile_shader
from .harness import Session, enable, installed, uninstalled
from .lint import lint
from .source import MetalError, parse_kernels
from .traffic import Bytes, Traffic
from .translate import cuda_source

__all__ = [
    "Bytes",
    "Kernel",
    "Library",
    "MetalError",
    "Options",
    "Session",
    "Traffic",
    "compile_shader",
    "cuda_source",
    "enable",
    "fronts",
    "installed",
    "lint",
    "parse_kernels",
    "uninstalled",
]
