"""Small clouds and questions that the tests of the point packages' differences share."""

from __future__ import annotations

from collections.abc import Callable

import torch

NAN = float("nan")
LINE = torch.arange(3000.0)[:, None] * torch.tensor([1.0, 0, 0])
CROSS = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, -1]])
BY_DISTANCE = [3, 0, 1, 2, 4]  # of the cross around its centre, ties by index


def ends(*sizes: int) -> torch.Tensor:
    """Inclusive ends of clouds of these sizes."""
    return torch.tensor(sizes, dtype=torch.int32).cumsum(0).int()


def follows_the_seed(run: Callable[[], torch.Tensor]) -> None:
    """Whether two runs after one seed agree, and a run after another differs."""
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(run().tolist())
    assert found[0] == found[1]
    assert found[0] != found[2]
