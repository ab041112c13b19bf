"""Calls of the point ops that GPUs have kernels for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .._registry import Op
from ..pointops._clouds import dense
from ..pointops.ball_query import ball_search
from ..pointops.fps import fps_sample
from ..pointops.group import gather_columns
from ..pointops.index import spatial_index
from ..pointops.interpolate import interpolate_columns
from ..pointops.knn import knn_search

__all__ = ["OPS", "STEMS", "calls"]

Args = tuple[Any, ...]
To = Callable[[torch.Tensor], torch.Tensor]

OPS: tuple[Op, ...] = (
    ball_search,
    fps_sample,
    gather_columns,
    interpolate_columns,
    knn_search,
    spatial_index,
)
STEMS = ("ball_query", "fps", "group", "index", "interpolate", "knn")


def _lattice(rows: int) -> torch.Tensor:
    """Points most of whose distances have equals, as float32 [rows, 3]; some repeat."""
    draw = torch.Generator().manual_seed(rows)
    side = max(2, round((1.5 * rows) ** (1 / 3)))
    return torch.randint(0, side, (rows, 3), generator=draw).float()


def _sampled(points: torch.Tensor, rows: int) -> list[Args]:
    """One cloud, by either kernel; and two of different sizes with starts of their own."""
    if rows == 0:
        return [(points, torch.zeros(0, 6, dtype=torch.int64), 0, False, False, 0, "auto")]
    most, half = min(rows, 9), rows // 2
    whole = torch.tensor([[0, rows, 0, most, rows - 1, 0]])
    made = [(points, whole, most, False, False, 0, name) for name in ("single", "multigroup")]
    if half:
        parts = torch.tensor([[0, half, 0, 2, 0, 0], [half, rows, 2, 5, half, half]])
        made.append((points, parts, 5, False, True, 0, "auto"))
    return made


def _searched(name: str, points: torch.Tensor, rows: int) -> list[Args]:
    """Every row by all rows, with an index and without; one cloud, so that a query has a cloud."""
    clouds, none = dense(1, rows, rows), points.new_empty(0, dtype=torch.uint8)
    rules: dict[str, list[Args]] = {
        "knn_search": [(4, "squared"), (40, "l1")],
        "ball_search": [(6.25, 6, False), (2.0, 40, True)],
    }
    indices = [none]
    if rows:
        indices.append(spatial_index(points, clouds))
    return [(points, points, clouds, index, *rule) for index in indices for rule in rules[name]]


def calls(name: str, rows: int, channels: int, to: To) -> list[Args]:
    """Argument lists for a point op, on clouds of so many rows."""
    points = to(_lattice(rows))
    if name == "fps_sample":
        return _sampled(points, rows)
    if name == "spatial_index":
        return [(points, dense(1, rows, rows))]
    if name in ("knn_search", "ball_search"):
        return _searched(name, points, rows)
    draw = torch.Generator().manual_seed(1)
    features = to(torch.randn(2, channels, max(rows, 1), generator=draw))
    idx = torch.arange(2 * rows * 3).reshape(2, rows, 3) * 7 % max(rows, 1)
    if name == "gather_columns":  # -1: no column
        return [(features, to(idx.reshape(2, -1))), (features, to(idx[..., 0] - 1))]
    return [(features, to(idx), to(torch.rand(2, rows, 3, generator=draw)))]
