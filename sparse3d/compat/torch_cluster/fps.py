"""torch_cluster.fps."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...pointops import flat


def fps(
    src: torch.Tensor,
    batch: torch.Tensor | None = None,
    ratio: float | torch.Tensor | None = None,
    random_start: bool = True,
    batch_size: int | None = None,
    ptr: torch.Tensor | Sequence[int] | None = None,
) -> torch.Tensor:
    """Farthest point sampling; taken points stay in the race, as in torch_cluster.

    Args:
        src: (N, ...) points.
        batch: sorted batch vector.
        ratio: share of each cloud, 0.5 where None.
        random_start: start at a random point of each cloud.
        batch_size: clouds.
        ptr: bounds of the clouds, take precedence over `batch`.

    Returns:
        int64 rows of `src`.
    """
    rows = src.flatten(1) if src.ndim > 1 else src
    return flat.fps(rows, batch, ratio, random_start, batch_size, ptr, stay=True)
