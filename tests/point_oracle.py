"""Brute force in numpy: what the contracts say, written again without the package."""

from __future__ import annotations

import numpy as np
import torch

EPS = 2.0**-24
SHAPES = ("uniform", "clustered", "planar", "duplicated", "line", "lattice", "lidar")

RADII = {
    "uniform": 0.5,
    "clustered": 0.012,
    "planar": 0.7,
    "duplicated": 0.1,
    "line": 0.4,
    "lattice": 1.0,
    "lidar": 0.8,
}


def make_cloud(shape: str, rows: int, seed: int = 0) -> torch.Tensor:
    """[rows, 3] float32 points of one kind, always the same for a seed."""
    draw = torch.Generator().manual_seed(seed * 97 + SHAPES.index(shape))
    uniform = torch.rand(rows, 3, generator=draw)
    if shape == "uniform":
        return uniform * 4 - 2
    if shape == "clustered":
        centres = torch.rand(5, 3, generator=draw) * 100
        pick = torch.randint(5, (rows,), generator=draw)
        return centres[pick] + 0.01 * torch.randn(rows, 3, generator=draw)
    if shape == "planar":
        return uniform * torch.tensor([10.0, 10.0, 0.0]) + torch.tensor([0.0, 0.0, 7.0])
    if shape == "duplicated":
        return uniform[torch.randint(max(rows // 4, 1), (rows,), generator=draw)]
    if shape == "line":
        return uniform[:, :1] * torch.tensor([30.0, 1.0, -2.0])
    if shape == "lattice":
        return torch.randint(0, 6, (rows, 3), generator=draw).float()
    angle, ring = uniform[:, 0] * 6.2831853, (uniform[:, 1] * 32).floor() + 2
    reach = ring * ring * 0.08
    return torch.stack([reach * angle.cos(), reach * angle.sin(), uniform[:, 2] * 0.1], 1)


def tied_cloud(threads: int) -> torch.Tensor:
    """A cloud whose farthest points tie such that their order names the number of threads.

    Of the pair (threads + 5, 2 threads + 5) a reduction over twice the threads takes the second
    first, of the pair (threads / 2 + 9, threads + 9) one over half the threads the first.
    """
    cloud = make_cloud("lattice", 2 * threads + 76) + 10
    far, middle = torch.tensor([100.0, 0, 0]), torch.tensor([0, 50.0, 0])
    cloud[0] = 13
    cloud[threads + 5], cloud[2 * threads + 5] = cloud[0] + far, cloud[0] - far
    cloud[threads // 2 + 9], cloud[threads + 9] = cloud[0] + middle, cloud[0] - middle
    return cloud


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
    order = list(range(size))
    if slots:
        width = slots.bit_length() - 1
        order.sort(key=lambda i: (f"{i % slots:0{width}b}"[::-1], i))
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
