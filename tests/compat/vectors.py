"""Recorded vectors as torch tensors, and how close is close."""

from __future__ import annotations

import numpy as np
import oracle
import torch
from golden.reader import Vector

FORWARD, GRADIENT = 1e-5, 1e-4


def tensor(vector: Vector, name: str) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(vector[name]))


def close(actual: torch.Tensor | None, expected: torch.Tensor, bound: float) -> None:
    assert actual is not None
    assert actual.shape == expected.shape
    if actual.numel():
        assert float((actual - expected).detach().abs().max()) <= bound


def order(theirs: np.ndarray, ours: torch.Tensor) -> torch.Tensor:
    """For each of our rows, the peer's row at the same place."""
    return torch.from_numpy(oracle.match_rows(theirs, ours.numpy()))
