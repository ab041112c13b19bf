"""Points to voxels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ....ops.coordinates import unique_sorted
from ....ops.keys import ravel_keys
from ....ops.voxelize import quantize

__all__ = ["ravel_hash", "sparse_quantize"]

Array = npt.NDArray[Any]


def ravel_hash(x: Array) -> npt.NDArray[np.uint64]:
    """Row-major cell number of each row in the bounding box."""
    return ravel_keys(torch.from_numpy(np.asarray(x))).numpy().view(np.uint64)


def sparse_quantize(
    coords: Array,
    voxel_size: float | tuple[float, ...] = 1,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
) -> Any:
    """Voxels of points, in the order of `ravel_hash`.

    Args:
        coords: [N, 3].
        voxel_size: edge, or one an axis.
        return_index: give the first point of each voxel too.
        return_inverse: give each point's voxel too.
    """
    points = torch.from_numpy(np.asarray(coords, np.float64))
    edges = [float(edge) for edge in np.broadcast_to(voxel_size, points.shape[1:])]
    cells = quantize(points, edges)
    first, inverse = unique_sorted(torch.cat([cells.new_zeros((len(cells), 1)), cells], 1))
    made = [cells[first].numpy()]
    if return_index:
        made.append(first.numpy())
    if return_inverse:
        made.append(inverse.numpy())
    return made[0] if len(made) == 1 else tuple(made)
