"""Kernels for NVIDIA GPUs: the `.metal` files compiled by NVRTC, and matrix kernels in Triton.

Integer, point, pool, voxelize, dense and segment kernels are those of `sparse3d.metal`, launch code
included; this package brings the compiler and the launcher. Batch norm is torch's. Nothing is
compiled at install.
"""

import importlib.util


def attach() -> None:
    """Attach the kernels to the operators.

    Raises:
        BackendUnavailable: with the reason, where no NVIDIA GPU can be used.
    """
    from . import _shader

    _shader.require()
    _shader.install()
    from ..metal import attach_shared

    attach_shared()
    from . import norm  # noqa: F401

    if importlib.util.find_spec("triton") is not None:
        from . import conv  # noqa: F401
