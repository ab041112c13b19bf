"""pointops.query: neighbours of flat clouds; index -1 and distance 1e5 where there is none."""

from __future__ import annotations

import torch

from ...pointops.pointcept import knn_query
from ...pointops.shell import random_shell_query, shell_query

__all__ = ["ball_query", "knn_query", "knnquery", "random_ball_query"]

ball_query = shell_query
random_ball_query = random_shell_query


def knnquery(
    nsample: int,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None,
    offset: torch.Tensor,
    new_offset: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`knn_query` with the arguments of the first generation."""
    return knn_query(nsample, xyz, offset, new_xyz, new_offset)
