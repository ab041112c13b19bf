"""Brute force over whole clouds, for the few queries that it can afford.

Float32 distances are taken again in numpy, axis by axis and rounded as the contracts say: indices
must be the same. Beside them stand float64 distances: where the two orders part, they may differ
by rounding alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

QUERIES = 256
SLACK = 12 * 2.0**-24
"""Each float32 difference, square and sum of three axes rounds once."""


class Wrong(Exception):
    """A result that brute force does not confirm."""


def squares(point: np.ndarray, cloud: np.ndarray) -> np.ndarray:
    """Squared distances from one point, in the dtype of the cloud's axes [3, N]."""
    step = cloud[0] - point[0]
    total = step * step
    for axis in (1, 2):
        np.subtract(cloud[axis], point[axis], out=step)
        step *= step
        total += step
    return total


def agree(narrow: np.ndarray, wide: np.ndarray, where: str) -> None:
    if not (np.abs(narrow - wide) <= SLACK * wide + 1e-40).all():
        raise Wrong(f"{where}: beyond the rounding of float32")


def drawn(query: torch.Tensor, cloud: torch.Tensor) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Random queries with their distances to every point, in float32 and in float64."""
    narrow = np.ascontiguousarray(cloud.numpy().T)
    wide, asked = narrow.astype(np.float64), query.numpy()
    for row in np.random.default_rng(0).permutation(len(asked))[:QUERIES]:
        yield int(row), squares(asked[row], narrow), squares(asked[row].astype(np.float64), wide)


def knn(
    query: torch.Tensor, cloud: torch.Tensor, k: int, got: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """The k nearest by (float32 distance, index), and none that float64 would not take."""
    distances, indices = (part[0].numpy() for part in got)
    for row, narrow, wide in drawn(query, cloud):
        last = np.partition(narrow, k - 1)[k - 1]
        near = np.flatnonzero(narrow <= last)
        want = near[np.argsort(narrow[near], kind="stable")][:k]
        if not np.array_equal(indices[row], want):
            raise Wrong(f"neighbours of query {row}")
        if not np.array_equal(distances[row], np.sqrt(narrow[want])):
            raise Wrong(f"distances of query {row}")
        agree(wide[want], np.sort(np.partition(wide, k - 1)[:k]), f"query {row}")


def ball(
    query: torch.Tensor,
    cloud: torch.Tensor,
    radius: float,
    k: int,
    got: tuple[torch.Tensor, torch.Tensor],
) -> None:
    """The first k points that are nearer than the radius; float64 parts at its surface alone."""
    distances, indices = (part[0].numpy() for part in got)
    square = np.float32(radius) * np.float32(radius)
    for row, narrow, wide in drawn(query, cloud):
        inside = narrow < square
        hits = np.flatnonzero(inside)[:k]
        want = np.full(k, -1)
        want[: len(hits)] = hits
        if not np.array_equal(indices[row], want):
            raise Wrong(f"hits of query {row}")
        if not np.array_equal(distances[row, : len(hits)], narrow[hits]):
            raise Wrong(f"distances of query {row}")
        parted = inside != (wide < radius * radius)
        agree(wide[parted], np.full(parted.sum(), radius * radius), f"query {row}")


def fps(cloud: torch.Tensor, taken: torch.Tensor) -> None:
    """Every point taken is the farthest of the whole cloud from those taken before it."""
    narrow = np.ascontiguousarray(cloud.numpy().T)
    wide = narrow.astype(np.float64)
    best = np.full(narrow.shape[1], np.inf, np.float32)
    exact = np.full(narrow.shape[1], np.inf)
    order = taken[0].numpy()
    for place, row in enumerate(order):
        if row != (np.argmax(best) if place else 0):
            raise Wrong(f"place {place} of the sequence")
        if place:
            agree(exact[row], exact.max(), f"place {place}")
        np.minimum(best, squares(narrow[:, row], narrow), out=best)
        np.minimum(exact, squares(wide[:, row], wide), out=exact)
        best[row] = exact[row] = -1  # a taken point leaves the race
