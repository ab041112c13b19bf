"""Kernel maps: which input row meets which output row through which tap.

Tap `t` pairs input coordinate `p` with output coordinate `q` of the same batch when, on every axis,
`p = q * stride - padding + t * dilation`. Pairs `(src, dst)` are grouped by tap;
`splits[t]:splits[t + 1]` are tap t's.

Four rules for the output coordinates:

* *submanifold*: outputs are the inputs; stride 1, padding = dilation * (kernel_size // 2), odd
  kernels.
* *footprint*: every `q` that some input reaches, inside `out_shape` where a grid is stated
  (spconv). With `transposed` the roles swap: every `q = p * stride - padding + t * dilation`
  (generative).
* *floor*: the distinct `floor(p / stride)` (MinkowskiEngine, torchsparse).
* *given*: the caller hands the output coordinates over.

*Order.* Within a tap, ascending dst (then ascending src, where repeated input rows give one dst
several). Created rows: by batch id, then first occurrence, scanning inputs by row and then by
ascending tap. *Duplicates.* Where inputs are looked up (submanifold, floor, given) the lowest row
answers; *footprint* scans rows, so every row makes its own pairs. *Empty.* Legal everywhere.
*Range.* Positions that leave int32 match nothing and are not created. *Determinism.* Exact
integers, equal on every backend. There is no gradient.

Sources: the rules are spconv 2.3.8's, MinkowskiEngine 0.5.4's and torchsparse 2.1's as their code
has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch

from .. import _check
from .._registry import Op
from ..geometry import Geometry, submanifold_padding, taps
from .coordinates import coordinate_lookup, coordinate_table, coordinate_unique

__all__ = ["floor", "footprint", "given", "submanifold"]

# Backends that find the neighbours of 3-D sites without a table.
WITHOUT_TABLE = frozenset({"cpu"})

Pairs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
CreatedPairs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _in_int32(values: torch.Tensor) -> torch.Tensor:
    return ((values >= -_check.INT32_MAX - 1) & (values <= _check.INT32_MAX)).all(1)


def _given_reference(
    coords: torch.Tensor,
    table: torch.Tensor,
    out_coords: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Pairs:
    """Look up `q * stride - padding + t * dilation` for every output row and tap."""
    position = out_coords[:, 1:].long()
    step, shift, spread = (position.new_tensor(list(v)) for v in (stride, padding, dilation))
    sources, targets, counts = [], [], [0]
    for tap in taps(kernel_size):
        wanted = position * step - shift + position.new_tensor(tap) * spread
        legal = _in_int32(wanted)
        queries = torch.cat([out_coords[:, :1], wanted.int()], 1)
        row = coordinate_lookup(coords, table, queries)
        hit = (row >= 0) & legal
        targets.append(hit.nonzero().squeeze(1).int())
        sources.append(row[hit])
        counts.append(len(targets[-1]))
    splits = torch.tensor(counts, dtype=torch.int64).cumsum(0)
    return torch.cat(sources), torch.cat(targets), splits


def _neighbours_reference(
    coords: torch.Tensor, table: torch.Tensor, kernel_size: Sequence[int], dilation: Sequence[int]
) -> torch.Tensor:
    """Look up `q - padding + t * dilation` for every row and tap."""
    position, site = coords[:, 1:].long(), coords[:, 0] >= 0
    padding = submanifold_padding(kernel_size, dilation)
    shift, spread = (position.new_tensor(list(v)) for v in (padding, dilation))
    columns = []
    for tap in taps(kernel_size):
        wanted = position - shift + position.new_tensor(tap) * spread
        queries = torch.cat([coords[:, :1], wanted.int()], 1)
        row = coordinate_lookup(coords, table, queries)
        columns.append(torch.where(site & _in_int32(wanted), row, -1))
    return torch.stack(columns, 1)


def _submanifold_reference(
    coords: torch.Tensor,
    table: torch.Tensor | None,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
) -> Pairs:
    """The given rule onto the inputs themselves."""
    table = coordinate_table(coords) if table is None else table
    padding = submanifold_padding(kernel_size, dilation)
    ones = [1] * len(kernel_size)
    return _given_reference(coords, table, coords, kernel_size, ones, padding, dilation)


def _footprint_reference(
    coords: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out_shape: Sequence[int],
    transposed: bool,
) -> CreatedPairs:
    """List every (row, tap) candidate in scan order, keep the legal ones, number the distinct
    coordinates."""
    ndim = coords.shape[1] - 1
    position = coords[:, None, 1:].long()
    tap = position.new_tensor(taps(kernel_size)).reshape(1, -1, ndim)
    step, shift, spread = (position.new_tensor(list(v)) for v in (stride, padding, dilation))
    if transposed:
        target = position * step - shift + tap * spread
        legal = torch.ones(target.shape[:2], dtype=torch.bool, device=coords.device)
    else:
        numerator = position + shift - tap * spread
        target = torch.div(numerator, step, rounding_mode="floor")
        legal = (target * step == numerator).all(2)
    legal &= _in_int32(target.reshape(-1, ndim)).reshape(legal.shape)
    if out_shape:
        legal &= ((target >= 0) & (target < target.new_tensor(list(out_shape)))).all(2)
    row, which = legal.nonzero(as_tuple=True)
    reached = torch.cat([coords[row, :1], target[row, which].int()], 1)
    first, place = coordinate_unique(reached)
    order = torch.argsort(which * max(len(first), 1) + place, stable=True)
    counts = torch.bincount(which, minlength=math.prod(kernel_size)).cpu()
    splits = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return reached[first], row[order].int(), place[order].int(), splits


def _floor_reference(
    coords: torch.Tensor,
    table: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> CreatedPairs:
    """Distinct `floor(p / stride)`, then the given rule onto them."""
    cell = torch.div(coords[:, 1:], coords.new_tensor(list(stride)), rounding_mode="floor")
    cells = torch.cat([coords[:, :1], cell], 1)
    first, _ = coordinate_unique(cells)
    out_coords = cells[first]
    pairs = _given_reference(coords, table, out_coords, kernel_size, stride, padding, dilation)
    return out_coords, *pairs


def _fake_pairs(coords: torch.Tensor, kernel_size: Sequence[int]) -> Pairs:
    pairs = torch.library.get_ctx().new_dynamic_size()
    splits = torch.empty(math.prod(kernel_size) + 1, dtype=torch.int64, device="cpu")
    return coords.new_empty((pairs,)), coords.new_empty((pairs,)), splits


def _fake_created(coords: torch.Tensor, kernel_size: Sequence[int]) -> CreatedPairs:
    rows = torch.library.get_ctx().new_dynamic_size()
    return coords.new_empty((rows, coords.shape[1])), *_fake_pairs(coords, kernel_size)


kernel_map_submanifold = Op(
    "kernel_map_submanifold(Tensor coords, Tensor? table, int[] kernel_size, int[] dilation)"
    " -> (Tensor, Tensor, Tensor)",
    reference=_submanifold_reference,
    fake=lambda coords, table, kernel_size, dilation: _fake_pairs(coords, kernel_size),
)
kernel_map_neighbours = Op(
    "kernel_map_neighbours(Tensor coords, Tensor table, int[] kernel_size, int[] dilation)"
    " -> Tensor",
    reference=_neighbours_reference,
    fake=lambda coords, table, kernel_size, dilation: coords.new_empty(
        (coords.shape[0], math.prod(kernel_size))
    ),
)
kernel_map_given = Op(
    "kernel_map_given(Tensor coords, Tensor table, Tensor out_coords, int[] kernel_size,"
    " int[] stride, int[] padding, int[] dilation) -> (Tensor, Tensor, Tensor)",
    reference=_given_reference,
    fake=lambda coords, table, out_coords, kernel_size, *_: _fake_pairs(coords, kernel_size),
)
kernel_map_footprint = Op(
    "kernel_map_footprint(Tensor coords, int[] kernel_size, int[] stride, int[] padding,"
    " int[] dilation, int[] out_shape, bool transposed) -> (Tensor, Tensor, Tensor, Tensor)",
    reference=_footprint_reference,
    fake=lambda coords, kernel_size, *_: _fake_created(coords, kernel_size),
)
kernel_map_floor = Op(
    "kernel_map_floor(Tensor coords, Tensor table, int[] kernel_size, int[] stride, int[] padding,"
    " int[] dilation) -> (Tensor, Tensor, Tensor, Tensor)",
    reference=_floor_reference,
    fake=lambda coords, table, kernel_size, *_: _fake_created(coords, kernel_size),
)


def _check_geometry(coords: torch.Tensor, geometry: Geometry) -> None:
    _check.coordinates("coords", coords)
    _check.row_limit("coords", coords.shape[0])
    if geometry.ndim != coords.shape[1] - 1:
        _check.fail(
            "kernel_size",
            f"of {coords.shape[1] - 1} entries as coords has axes",
            list(geometry.kernel_size),
        )


def submanifold(
    coords: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    table: torch.Tensor | None = None,
) -> Pairs:
    """Pairs of a submanifold layer: outputs are the inputs, row by row.

    Args:
        coords: int32 [N, 1 + D].
        kernel_size: odd, one entry an axis.
        dilation: one entry an axis.
        table: `build_table(coords)` if at hand; a backend without use for one makes none.

    Returns:
        `src` int32 [P], `dst` int32 [P], `splits` int64 [K + 1] on the CPU. Tap K - 1 - t holds tap
        t's pairs with the roles swapped, if the rows are distinct.

    Raises:
        ValueError: if a kernel size is even, or lengths do not fit the axes.
        TypeError: if `coords` is not an int32 tensor.
    """
    padding = submanifold_padding(kernel_size, dilation)
    ones = (1,) * len(kernel_size)
    _check_geometry(coords, Geometry(tuple(kernel_size), ones, padding, tuple(dilation)))
    return cast(Pairs, kernel_map_submanifold(coords, table, list(kernel_size), list(dilation)))


def given(
    coords: torch.Tensor,
    out_coords: torch.Tensor,
    geometry: Geometry,
    table: torch.Tensor | None = None,
) -> Pairs:
    """Pairs of a layer onto output coordinates that the caller hands over.

    Args:
        coords: int32 [N, 1 + D], the inputs.
        out_coords: int32 [M, 1 + D].
        geometry: kernel size, stride, padding and dilation.
        table: `build_table(coords)` if at hand.

    Returns:
        `src` int32 [P], `dst` int32 [P], `splits` int64 [K + 1] on the CPU.

    Raises:
        ValueError: if lengths, columns or devices do not fit together.
        TypeError: if a coordinate tensor is not int32.
    """
    _check_geometry(coords, geometry)
    _check.coordinates("out_coords", out_coords)
    if out_coords.shape[1] != coords.shape[1]:
        _check.fail(
            "out_coords", f"of {coords.shape[1]} columns as coords has", out_coords.shape[1]
        )
    _check.same_device(coords=coords, out_coords=out_coords)
    table = coordinate_table(coords) if table is None else table
    lists = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
    return cast(Pairs, kernel_map_given(coords, table, out_coords, *map(list, lists)))


def footprint(
    coords: torch.Tensor,
    geometry: Geometry,
    out_shape: Sequence[int] | None = None,
    *,
    transposed: bool = False,
) -> CreatedPairs:
    """Create every output that an input reaches, and the pairs.

    Args:
        coords: int32 [N, 1 + D].
        geometry: kernel size, stride, padding and dilation.
        out_shape: grid of the outputs; None means none, and negative positions are legal.
        transposed: False: `p = q * stride - padding + t * dilation`; True: `q = p * stride -
            padding + t * dilation`.

    Returns:
        `out_coords` int32 [M, 1 + D], `src` int32 [P], `dst` int32 [P], `splits` int64 [K + 1] on
        the CPU.

    Raises:
        ValueError: if lengths do not fit the axes.
        TypeError: if `coords` is not an int32 tensor.
    """
    _check_geometry(coords, geometry)
    lists = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
    shape = [] if out_shape is None else list(out_shape)
    return cast(CreatedPairs, kernel_map_footprint(coords, *map(list, lists), shape, transposed))


def floor(
    coords: torch.Tensor, geometry: Geometry, table: torch.Tensor | None = None
) -> CreatedPairs:
    """Create the distinct `floor(p / stride)`, and the pairs onto them.

    Args:
        coords: int32 [N, 1 + D].
        geometry: kernel size, stride, padding and dilation.
        table: `build_table(coords)` if at hand.

    Returns:
        `out_coords` int32 [M, 1 + D], `src` int32 [P], `dst` int32 [P], `splits` int64 [K + 1] on
        the CPU.

    Raises:
        ValueError: if lengths do not fit the axes.
        TypeError: if `coords` is not an int32 tensor.
    """
    _check_geometry(coords, geometry)
    table = coordinate_table(coords) if table is None else table
    lists = (geometry.kernel_size, geometry.stride, geometry.padding, geometry.dilation)
    return cast(CreatedPairs, kernel_map_floor(coords, table, *map(list, lists)))
