"""mps_pointops.compat: `install`, and what it lets other code import."""

from __future__ import annotations

from .._install import install as _install
from ..knn_cuda import KNN
from ..pointnet2_ops.pointnet2_utils import (
    ball_query,
    furthest_point_sample,
    gather_operation,
    grouping_operation,
)

__all__ = [
    "KNN",
    "ball_query",
    "furthest_point_sample",
    "gather_operation",
    "grouping_operation",
    "install",
]


def install(force: bool = False, *, pointcept: bool = False) -> list[str]:
    """Let imports of pointnet2_ops, knn_cuda and torch_cluster find sparse3d's stand-ins.

    Args:
        force: stand in for a package even if a real one can be imported.
        pointcept: stand in for `pointops` too.

    Returns:
        The top-level names that now lead to a stand-in.
    """
    names = ["pointnet2_ops", "knn_cuda", "torch_cluster", *(["pointops"] if pointcept else [])]
    return _install(*names, force=force)
