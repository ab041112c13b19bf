"""Farthest point sampling: buckets along a Hilbert curve, pruned by their boxes."""

from __future__ import annotations

import torch

from ..pointops.fps import fps_sample
from ._library import DTYPES, address, call, path, threads
from ._points import table


@fps_sample.kernel("cpu")
def _fps_sample(
    points: torch.Tensor,
    clouds: torch.Tensor,
    num: int,
    stay: bool,
    skip_near_origin: bool,
    slots: int,
    strategy: str,
) -> torch.Tensor:
    points, rows = points.contiguous(), table(clouds)
    taken = torch.empty(num, dtype=torch.int64)
    call(
        "s3d_fps",
        DTYPES[points.dtype],
        address(points),
        points.shape[1],
        address(rows),
        len(rows),
        int(stay),
        int(skip_near_origin),
        slots,
        threads(),
        path(),
        address(taken),
    )
    return taken
