"""Runs unmodified .metal kernels and unmodified launch code on CPU tensors. See README.md."""

from sparse3d.cuda._source import MetalError, parse_kernels
from sparse3d.cuda._translate import cuda_source

from .build import fronts
from .device import Kernel, Library, Options, compile_shader
from .harness import Session, enable, installed, uninstalled
from .lint import lint
from .traffic import Bytes, Traffic

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
