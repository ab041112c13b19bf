"""Random clouds that are hard in different ways, and brute force as the contracts round it.

Everything here is numpy: distances are float32 for every dtype but float64, one rounding an
operation, axis by axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

KINDS = (
    "uniform", "clustered", "planar", "duplicated", "line", "lattice", "one point", "geometric",
    "utm", "tiny", "huge", "denormal", "overflowing",
)  # fmt: skip
SIZES = (0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 255, 257, 511, 1030)
DTYPES = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass
class Draw:
    """One random case: its generator, its kind of cloud and its dtype."""

    rng: np.random.Generator
    kind: str
    dtype: torch.dtype

    @classmethod
    def of(cls, seed: int) -> Draw:
        rng = np.random.default_rng(seed)
        kind = KINDS[rng.integers(len(KINDS))]
        dtype = DTYPES[rng.integers(len(DTYPES))]
        if kind in ("utm", "tiny", "huge", "denormal", "overflowing") and dtype == torch.float16:
            dtype = torch.float32  # beyond its range
        return cls(rng, kind, dtype)

    def size(self, most: int = 1030) -> int:
        sizes = [size for size in SIZES if size <= most]
        return int(self.rng.choice(sizes)) if self.rng.random() < 0.8 else self.below(most + 1)

    def below(self, limit: int) -> int:
        return int(self.rng.integers(limit))

    def pick(self, *choices: object) -> object:
        return choices[self.below(len(choices))]

    def points(self, rows: int, dim: int) -> np.ndarray:
        rng = self.rng
        base = rng.random((rows, dim))
        if self.kind == "clustered":
            base = rng.random((3, dim))[rng.integers(3, size=rows)] * 50 + 1e-3 * base
        elif self.kind == "planar":
            base[:, -1] = 7.0
        elif self.kind == "duplicated":
            base = base[rng.integers(max(rows // 3, 1), size=rows)] if rows else base
        elif self.kind == "line":
            base = base[:, :1] * np.linspace(30, -2, dim)
        elif self.kind == "lattice":
            base = rng.integers(0, 4, (rows, dim)).astype(float)
        elif self.kind == "one point":
            base = np.full((rows, dim), 0.3)
        elif self.kind == "geometric":
            base = base * 2.0 ** rng.integers(-12, 12, (rows, 1))
        elif self.kind == "utm":
            base = base * 30 + np.linspace(5e5, 4.1e6, dim)
        return base * {"tiny": 1e-18, "huge": 1e18, "denormal": 3e-22, "overflowing": 3e38}.get(
            self.kind, 1.0
        )

    def cloud(self, rows: int, dim: int = 3, batch: int | None = None) -> torch.Tensor:
        """[rows, dim] or [batch, rows, dim] of the dtype, in one of several memory layouts."""
        shape = (rows, dim) if batch is None else (batch, rows, dim)
        values = self.points(int(np.prod(shape[:-1])), dim).reshape(shape)
        if values.size and self.rng.random() < 0.3:
            values = values - values.reshape(-1, dim)[0]  # zero is among them
        cloud = torch.from_numpy(values).to(self.dtype)
        layout = self.below(4)
        if layout == 1:
            return cloud.transpose(-1, -2).contiguous().transpose(-1, -2)
        if layout == 2:
            return torch.cat([cloud, cloud + 1], -1)[..., :dim]
        if layout == 3:
            return torch.cat([cloud, cloud], -2).view(*shape[:-2], 2 * rows, dim)[..., :rows, :]
        return cloud

    def sizes(self, most: int = 120) -> list[int]:
        """Sizes of flat clouds; some are empty, in the middle too."""
        clouds = 1 + self.below(6)
        return [0 if self.rng.random() < 0.25 else self.size(most) for _ in range(clouds)]


def wide(points: torch.Tensor) -> np.ndarray:
    """The points in the dtype that distances are computed in."""
    points = points.detach()
    return (points if points.dtype == torch.float64 else points.float()).numpy()


def table(query: np.ndarray, reference: np.ndarray, norm: int = 2) -> np.ndarray:
    """All distances, squared or L1."""
    total = np.zeros((len(query), len(reference)), query.dtype)
    with np.errstate(over="ignore", under="ignore"):
        for axis in range(query.shape[1]):
            step = np.abs(query[:, axis, None] - reference[None, :, axis])
            total = total + (step if norm == 1 else step * step)
    return total


def nearest(distances: np.ndarray, k: int) -> np.ndarray:
    """The k first columns of each row by (distance, column)."""
    return np.argsort(distances, axis=1, kind="stable")[:, :k]


def first_hits(hit: np.ndarray, k: int) -> np.ndarray:
    """The first k true columns of each row, -1 behind."""
    rows = np.full((len(hit), k), -1, np.int64)
    for row, line in enumerate(hit):
        found = np.flatnonzero(line)[:k]
        rows[row, : len(found)] = found
    return rows


def farthest(
    points: np.ndarray, count: int, start: int, *, stay: bool = False, slots: int = 0,
    barred: np.ndarray | None = None,
) -> list[int]:  # fmt: skip
    """Farthest point sampling; ties go to the first place in the order of `slots`."""
    size = len(points)
    order = np.arange(size)
    if slots:
        bits = slots.bit_length() - 1
        reverse = [int(f"{slot:0{bits}b}"[::-1] or "0", 2) if bits else 0 for slot in range(slots)]
        order = np.array(sorted(range(size), key=lambda row: (reverse[row % slots], row)))
    best = np.full(size, np.inf, points.dtype)
    out = np.zeros(size, bool) if barred is None else barred.copy()
    taken: list[int] = []
    row = start
    for _ in range(count):
        taken.append(row)
        best = np.minimum(best, table(points[row : row + 1], points)[0])
        if not stay:
            out[row] = True
        race = np.where(out, -1, best)[order]
        row = int(order[race.argmax()]) if race.max() >= 0 else 0
    return taken


def check_float64(query: np.ndarray, reference: np.ndarray, got: np.ndarray) -> None:
    """Where exact distances order neighbours otherwise, they tie within the rounding."""
    if query.dtype == np.float64 or not got.size:
        return
    exact = table(query.astype(np.float64), reference.astype(np.float64))
    true = np.sort(exact, 1)[:, : got.shape[1]]
    mine = np.take_along_axis(exact, got, 1)
    # Each difference, square and sum rounds once; squares below 2^-149 vanish; above 2^128 all tie.
    slack = true * (4 + 2 * query.shape[1]) * 2.0**-24 + query.shape[1] * 2.0**-149
    assert ((np.abs(mine - true) <= slack) | (mine > 3.4e38) & (true > 3.4e38)).all()
