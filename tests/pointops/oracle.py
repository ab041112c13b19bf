"""Brute force in numpy: what the contracts say, written again without the package."""

from __future__ import annotations

import numpy as np
import torch

EPS = 2.0**-24


def distances32(query: torch.Tensor, reference: torch.Tensor, norm: int = 2) -> np.ndarray:
    """Float32 distances, coordinate by coordinate, every operation rounded on its own."""
    q, p = query.detach().float().numpy(), reference.detach().float().numpy()
    total = np.zeros((len(q), len(p)), np.float32)
    for axis in range(q.shape[1]):
        step = np.abs(q[:, axis, None] - p[None, :, axis])
        total = (total + (step if norm == 1 else step * step)).astype(np.float32)
    return total


def distances64(query: torch.Tensor, reference: torch.Tensor) -> np.ndarray:
    """Squared distances in float64."""
    q, p = query.detach().double().numpy(), reference.detach().double().numpy()
    return ((q[:, None, :] - p[None, :, :]) ** 2).sum(2)


def knn(query: torch.Tensor, reference: torch.Tensor, k: int) -> np.ndarray:
    """Indices by (float32 distance, index)."""
    table = distances32(query, reference)
    index = np.broadcast_to(np.arange(table.shape[1]), table.shape)
    return np.lexsort((index, table), axis=1)[:, :k]


def check_against_float64(query: torch.Tensor, reference: torch.Tensor, got: np.ndarray) -> None:
    """Whatever the float64 order would choose otherwise must be a tie within float32 rounding."""
    table = distances64(query, reference)
    true = np.sort(table, 1)[:, : got.shape[1]]
    mine = np.take_along_axis(table, got, 1)
    # Each float32 coordinate difference, square and sum adds at most one rounding.
    slack = true * 12 * EPS + 1e-40
    assert (np.abs(mine - true) <= slack).all()


def ball(query: torch.Tensor, reference: torch.Tensor, radius: float, k: int) -> np.ndarray:
    """The first k hits by index, -1 behind."""
    square = np.float32(radius) * np.float32(radius)
    rows = np.full((len(query), k), -1, np.int64)
    for row, line in enumerate(distances32(query, reference) < square):
        hits = np.flatnonzero(line)[:k]
        rows[row, : len(hits)] = hits
    return rows


def fps(
    cloud: torch.Tensor, count: int, start: int = 0, *, stay: bool = False, slots: int = 0
) -> list[int]:
    """Farthest point sampling, one candidate at a time."""
    size = len(cloud)
    best = np.full(size, np.inf, np.float32)
    order = sorted(range(size), key=lambda i: (i % slots, i)) if slots else list(range(size))
    taken = [start]
    while len(taken) < count:
        best = np.minimum(best, distances32(cloud[taken[-1]][None], cloud)[0])
        winner, highest = -1, np.float32(-1)
        gone = set() if stay else set(taken)
        for index in order:
            if index not in gone and best[index] > highest:
                winner, highest = index, best[index]
        taken.append(max(winner, 0))
    return taken[:count]
