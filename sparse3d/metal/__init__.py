"""Kernels for Apple GPUs: hand-written Metal, compiled at first use by `torch.mps.compile_shader`.

Importing this package attaches them to the operators, or raises BackendUnavailable with the reason.
"""

from . import _shader

_shader.require()

from . import conv, coordinates, dense, kernel_map, norm, pool, segment, voxelize  # noqa: E402

__all__ = ["conv", "coordinates", "dense", "kernel_map", "norm", "pool", "segment", "voxelize"]
