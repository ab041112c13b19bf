"""Operators of pyg-lib 0.6 (`torch.ops.pyg.*`) that torch_geometric 2.8 calls for point clouds.

torch_geometric 2.8 needs pyg-lib installed; pyg-lib owns the schemas and kernels for CPU and CUDA.
`register()` adds ours for the dispatch keys it has none for.
"""

from __future__ import annotations

import torch

from ..pointops import grid
from .torch_cluster import _ops

__all__ = ["register"]


def _walk(
    rowptr: torch.Tensor,
    col: torch.Tensor,
    seed: torch.Tensor,
    walk_length: int,
    p: float,
    q: float,
) -> torch.Tensor:
    return _ops.random_walk(rowptr, col, seed, walk_length, p, q)[0]


_RUN = {
    "fps": _ops.fps,
    "knn": _ops.knn,
    "radius": _ops.radius,
    "nearest": _ops.nearest,
    "grid_cluster": grid.grid_cluster,
    "graclus_cluster": _ops.graclus,
    "random_walk": _walk,
}
_libraries: list[torch.library.Library] = []


def register(*keys: str) -> list[str]:
    """Add our kernels to pyg-lib's operators.

    Args:
        *keys: dispatch keys, by default `CPU`, `CUDA` and `MPS`; one that an operator already has
            a kernel for is left alone.

    Returns:
        What was registered, as `operator:key`.

    Raises:
        ImportError: if pyg-lib's operators are not there.
    """
    missing = [name for name in _RUN if not hasattr(torch.ops.pyg, name)]
    if missing:
        raise ImportError(f"pyg-lib must be imported first, its operators {missing} are not there")
    done = []
    for key in keys or ("CPU", "CUDA", "MPS"):
        library = torch.library.Library("pyg", "IMPL", key)  # type: ignore[no-untyped-call]
        for name, run in _RUN.items():
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"pyg::{name}", key):
                library.impl(name, run)  # type: ignore[no-untyped-call]
                done.append(f"{name}:{key}")
        _libraries.append(library)
    return done
