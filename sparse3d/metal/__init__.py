"""Kernels for Apple GPUs: hand-written Metal, compiled at first use by `torch.mps.compile_shader`.

The launch modules serve NVIDIA GPUs too: `sparse3d.cuda` puts another compiler under them.
"""


def attach() -> None:
    """Attach the kernels to the operators.

    Raises:
        BackendUnavailable: with the reason, where nothing can compile and run Metal.
    """
    from . import _shader

    _shader.require()
    attach_shared()
    from . import conv, linear, order  # noqa: F401


def attach_shared() -> None:
    """Attach the kernels that NVIDIA GPUs run as they are: the others have better ones there."""
    from . import (  # noqa: F401  (each module attaches its own)
        ball_query,
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
