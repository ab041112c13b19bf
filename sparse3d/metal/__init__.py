"""Kernels for Apple GPUs: hand-written Metal, compiled at first use by `torch.mps.compile_shader`.

Importing this package attaches them to the operators, or raises BackendUnavailable with the reason.
"""

from . import _shader

_shader.require()

from . import (  # noqa: E402
    ball_query,
    conv,
    coordinates,
    dense,
    fps,
    group,
    index,
    interpolate,
    kernel_map,
    knn,
    norm,
    pool,
    segment,
    voxelize,
)

__all__ = [
    "ball_query",
    "conv",
    "coordinates",
    "dense",
    "fps",
    "group",
    "index",
    "interpolate",
    "kernel_map",
    "knn",
    "norm",
    "pool",
    "segment",
    "voxelize",
]
