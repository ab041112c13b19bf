"""Cells and the places of their lattice: coordinates in units of a stride and back.

    place = cell * stride        cell = floor(place / stride)  (`ops.coordinates.cells_of`)
    on the lattice: every position is a multiple of its axis's stride

A row is (batch, a_0, ..., a_{D-1}) where not said otherwise; the batch id is never scaled or moved.
*Dtypes.* int32, but for `in_cells` and `floored`, which take points. *Gradient.* None.
*Determinism.* Exact integers.

Example:
    >>> import torch
    >>> from sparse3d.ops.lattice import lattice_places, on_lattice
    >>> places = lattice_places(torch.tensor([[0, 1, -2]], dtype=torch.int32), (4, 2))
    >>> places.tolist(), on_lattice(places, (8, 2)).tolist()
    ([[0, 4, -4]], [False])
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import _check

__all__ = [
    "batch_count",
    "extent",
    "floored",
    "in_cells",
    "lattice_places",
    "moved_by",
    "on_lattice",
    "window",
]


def _unit(rows: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    if len(stride) != rows.shape[1] - 1 or min(stride) < 1:
        _check.fail("stride", f"{rows.shape[1] - 1} integers > 0", list(stride))
    return rows.new_tensor([1, *stride])


def lattice_places(cells: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """The place of each cell: batch id, then position times stride.

    Args:
        cells: int32 [N, 1 + D].
        stride: one entry an axis, > 0.

    Raises:
        ValueError: if the strides are not D positive integers.
    """
    return cells * _unit(cells, stride)


def on_lattice(coords: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Which rows lie at multiples of the stride: bool [N].

    Args:
        coords: int32 [N, 1 + D].
        stride: one entry an axis, > 0.

    Raises:
        ValueError: if the strides are not D positive integers.
    """
    return (coords % _unit(coords, stride) == 0).all(1)


def in_cells(points: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Points [Q, 1 + D], batch id first, in units of a cell of that stride: floating.

    Raises:
        ValueError: if the strides are not D positive integers.
    """
    _check.tensor("points", points, 2)
    return (points / _unit(points, stride)).contiguous()


def floored(name: str, points: torch.Tensor) -> torch.Tensor:
    """The cell of edge 1 that each point lies in, int32; whole numbers are narrowed alone.

    Args:
        name: of the argument, for the message.
        points: of any shape.

    Raises:
        ValueError: if a cell leaves int32.
    """
    return _check.narrowed(name, points.floor() if points.is_floating_point() else points)


def moved_by(
    coords: torch.Tensor,
    offsets: torch.Tensor,
    scale: torch.Tensor | None = None,
    batch_column: int = 0,
) -> torch.Tensor:
    """Every row at every offset from it.

    Args:
        coords: integers [N, 1 + D].
        offsets: integers [K, D].
        scale: D integers that positions are multiplied by first, or None.
        batch_column: where the batch id stands, 0 or D.

    Returns:
        [K, N, 1 + D], of the dtype of `coords`.

    Raises:
        ValueError: if axes do not fit, or the batch id stands elsewhere.
    """
    axes = _check.tensor("coords", coords, 2).shape[1] - 1
    if _check.tensor("offsets", offsets, 2).shape[1] != axes:
        _check.fail("offsets", f"of {axes} columns", offsets.shape[1])
    if batch_column not in (0, axes):
        _check.fail("batch_column", f"0 or {axes}", batch_column)
    first = batch_column == 0
    places = coords[:, 1:] if first else coords[:, :axes]
    batch = coords[:, batch_column, None]
    if scale is not None:
        places = places * scale.to(coords)
    moved = places[None] + offsets.to(coords)[:, None]
    column = batch[None].expand(len(offsets), -1, 1)
    return torch.cat([column, moved] if first else [moved, column], 2)


def window(
    coords: torch.Tensor,
    low: torch.Tensor | None,
    stride: Sequence[int] | None = None,
    *,
    toward_zero: bool = False,
) -> torch.Tensor:
    """Rows with a lower bound taken off, in units of a stride.

    Args:
        coords: int32 [N, 1 + D].
        low: D numbers, or None for 0.
        stride: positions are divided by it, rounded down; None for 1.
        toward_zero: `coords` are in units of the stride already, and `low` alone is divided by
            it, rounded toward 0 (torchsparse's dense grids).

    Returns:
        int32 [N, 1 + D].

    Raises:
        ValueError: if `low` or `stride` has not D entries.
    """
    axes = coords.shape[1] - 1
    places = coords[:, 1:]
    if low is not None:
        if low.numel() != axes:
            _check.fail("low", f"{axes} numbers", list(low.shape))
        shift = low.to(coords).reshape(-1)
        if toward_zero and stride is not None:
            shift = torch.div(shift, _unit(coords, stride)[1:], rounding_mode="trunc")
        places = places - shift
    if stride is not None and not toward_zero:
        places = places // _unit(coords, stride)[1:]
    return torch.cat([coords[:, :1], places], 1)


def extent(coords: torch.Tensor) -> list[int]:
    """The least grid from 0 that holds all rows: 1 + the largest position an axis; zeros if there
    is no row."""
    if len(coords) == 0:
        return [0] * (coords.shape[1] - 1)
    return [int(top) + 1 for top in coords[:, 1:].amax(0).tolist()]


def batch_count(coords: torch.Tensor) -> int:
    """The least batch that holds all rows: 1 + the largest batch id, at least 1."""
    return int(coords[:, 0].max()) + 1 if len(coords) else 1
