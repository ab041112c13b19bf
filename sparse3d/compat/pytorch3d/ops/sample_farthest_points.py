"""pytorch3d.ops.sample_farthest_points."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ....pointops import _inputs
from ....pointops.fps import fps_sample
from .utils import masked_gather


def sample_farthest_points(
    points: torch.Tensor,
    lengths: torch.Tensor | None = None,
    K: int | Sequence[int] | torch.Tensor = 50,
    random_start_point: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Farthest points (N, max K, D), padded with 0, and int64 indices, padded with -1.

    Taken points stay in the race, as in pytorch3d; a cloud with fewer than K points gives them all.
    Distances and the returned points are float32, whatever the points are.
    """
    points, counts = _inputs.padded("points", points, "lengths", lengths)
    points = points.float()
    batch, padded, dim = points.shape
    counts = torch.full((batch,), padded) if counts is None else counts
    wanted = torch.as_tensor(K, dtype=torch.int64).cpu().reshape(-1)
    if wanted.numel() not in (1, batch):
        raise ValueError(f"K must be one number or {batch}, one a cloud, got {wanted.numel()}")
    wanted = wanted.expand(batch)
    if batch and int(wanted.min()) < 0:
        raise ValueError(f"K must be >= 0, got {int(wanted.min())}")
    widest = int(wanted.max()) if batch else 0
    taken = torch.minimum(wanted, counts)
    first = torch.arange(batch) * padded
    start = first.clone()
    if random_start_point:
        start += (torch.rand(batch) * counts).long().minimum((counts - 1).clamp_min(0))
    ends = taken.cumsum(0)
    clouds = torch.stack([first, first + counts, ends - taken, ends, start, first], 1)
    rows = fps_sample(
        _inputs.computed(points.detach()).view(-1, dim),
        clouds,
        int(taken.sum()),
        True,
        False,
        0,
        "auto",
    )
    indices = torch.full((batch, widest), -1, dtype=torch.int64, device=points.device)
    indices[torch.arange(widest) < taken[:, None]] = rows
    return masked_gather(points, indices), indices
