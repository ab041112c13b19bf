"""mps_pointops.pyg: register_mps."""

from __future__ import annotations

from ..pyg import register

__all__ = ["register_mps"]


def register_mps() -> list[str]:
    """Add kernels for Apple GPUs to pyg-lib's operators; the names of those that had none.

    Raises:
        ImportError: if pyg-lib's operators are not there.
    """
    return [entry.partition(":")[0] for entry in register("MPS")]
