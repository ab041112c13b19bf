"""Points to voxels and back.

    voxel of a point = floor((point - origin) / voxel_size)      (or round half to even)
    trilinear: value(p) = sum over the 2^D corners c of the cell of p of  prod_axis (1 - |p - c|) *
    features[c]

*Shapes.* points [N, D] or [Q, 1 + D] with the batch id first, features [N, C], coords int32 [M, 1 +
D]. *Order.* Voxels are listed by batch id, then first occurrence. *Padding.* A corner without a
voxel counts 0 and its weight stays in the sum (MinkowskiEngine); `renormalize` divides by the
weights present (torchsparse). A point whose corners are all absent is 0. *Accumulation.*
Quantisation in the dtype of the points (half precision: float32), so that float32 points give
float32's cells; sums in float32 (float64 for float64). *Gradient.* To features and interpolation
weights; none to point positions. *Determinism.* Fixed order.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch

from .. import _check
from .._registry import Op
from ._conv_reference import _accumulator
from .coordinates import coordinate_lookup, coordinate_table, coordinate_unique
from .order import count_ids, order_keys, running_sum
from .segment import reduce_segments, segment_sum, take_rows

__all__ = [
    "PointGroups",
    "Voxels",
    "cell_corners",
    "devoxelize",
    "group_points",
    "quantize",
    "shares_present",
    "trilinear_weights",
    "voxelize",
]

ROUNDINGS = ("floor", "round")
REDUCTIONS = ("mean", "sum", "max", "first")
HALVES = ("away", "even")


class Voxels(NamedTuple):
    """Voxels of a point cloud: features [M, C], indices int32 [M, 1 + D], inverse int64 [N], counts
    int64 [M]."""

    features: torch.Tensor
    indices: torch.Tensor
    inverse: torch.Tensor
    counts: torch.Tensor


class PointGroups(NamedTuple):
    """Points listed by voxel: points [M, P, F], indices int32 [M, D], counts int32 [M], voxel_ids
    int64 [N] (-1: outside)."""

    points: torch.Tensor
    indices: torch.Tensor
    counts: torch.Tensor
    voxel_ids: torch.Tensor


def _map_reference(
    coords: torch.Tensor, table: torch.Tensor, points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and weight of each of the 2^D corners; corner bits run with the last axis fastest."""
    batch, cell = points[:, :1].int(), points[:, 1:].floor().int()
    rows = []
    for corner in itertools.product((0, 1), repeat=cell.shape[1]):
        moved = torch.cat([batch, cell + cell.new_tensor(corner)], 1)
        rows.append(coordinate_lookup(coords, table, moved))
    return torch.stack(rows, 1), trilinear_weights(points[:, 1:])


def trilinear_weights(points: torch.Tensor, edge: float = 1.0) -> torch.Tensor:
    """Weights of the 2^D corners of each point's cell.

    Args:
        points: floating [Q, D].
        edge: of a cell.

    Returns:
        [Q, 2^D]; corner bits run with the last axis fastest, as `cell_corners` lists them.
    """
    scaled = points if edge == 1 else points / edge
    fraction = scaled - scaled.floor()
    weights = []
    for corner in itertools.product((False, True), repeat=points.shape[1]):
        upper = torch.tensor(corner, device=points.device)
        weights.append(torch.where(upper, fraction, 1 - fraction).prod(1))
    return torch.stack(weights, 1)


def cell_corners(points: torch.Tensor) -> torch.Tensor:
    """The 2^D corners of each point's cell.

    Args:
        points: floating [Q, 1 + D], batch id first, positions in units of a cell.

    Returns:
        int32 [2^D, Q, 1 + D], the last axis fastest.

    Raises:
        ValueError: if a corner leaves int32.
    """
    base = _check.narrowed("points", points.floor())
    _check.narrowed("points + 1", base.long() + 1)
    corners = itertools.product((0, 1), repeat=base.shape[1] - 1)
    return torch.stack([base + base.new_tensor([0, *corner]) for corner in corners])


def shares_present(rows: torch.Tensor, weights: torch.Tensor, eps: float = 0.0) -> torch.Tensor:
    """Weights of the rows that there are, over their sum; 0 elsewhere.

    Args:
        rows: [Q, n], -1 for none.
        weights: [Q, n].
        eps: added to the sum.
    """
    present = torch.where(rows >= 0, weights, 0)
    total = present.sum(1, keepdim=True) + eps
    return torch.where(total > 0, present / total.clamp(min=1e-30), 0)


def _map_fake(
    coords: torch.Tensor, table: torch.Tensor, points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (points.shape[0], 2 ** (points.shape[1] - 1))
    return points.new_empty(shape, dtype=torch.int32), points.new_empty(shape)


def _interpolate_reference(
    features: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Weighted sum of the rows present, corner by corner."""
    wide = features.to(_accumulator(features.dtype))
    out = wide.new_zeros((rows.shape[0], features.shape[1]))
    if features.shape[0] == 0:
        return out.to(features.dtype)
    for row, weight in zip(rows.unbind(1), weights.to(wide.dtype).unbind(1), strict=True):
        value = wide.index_select(0, row.clamp(min=0)) * weight[:, None]
        out += torch.where((row >= 0)[:, None], value, 0)
    return out.to(features.dtype)


def _interpolate_grad_reference(
    grad: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor, num: int
) -> torch.Tensor:
    """Segment sum of the weighted upstream rows over the feature rows they came from."""
    upstream = grad.to(_accumulator(grad.dtype))
    point, corner = (rows >= 0).nonzero(as_tuple=True)
    value = upstream.index_select(0, point) * weights[point, corner, None].to(upstream.dtype)
    return cast(torch.Tensor, segment_sum(value, rows[point, corner].long(), num)).to(grad.dtype)


trilinear_map = Op(
    "trilinear_map(Tensor coords, Tensor table, Tensor points) -> (Tensor, Tensor)",
    reference=_map_reference,
    fake=_map_fake,
)
interpolate = Op(
    "interpolate(Tensor features, Tensor rows, Tensor weights) -> Tensor",
    reference=_interpolate_reference,
    fake=lambda features, rows, weights: features.new_empty((rows.shape[0], features.shape[1])),
)
interpolate_grad = Op(
    "interpolate_grad(Tensor grad, Tensor rows, Tensor weights, SymInt num) -> Tensor",
    reference=_interpolate_grad_reference,
    fake=lambda grad, rows, weights, num: grad.new_empty((num, grad.shape[1])),
)


def _products(left: torch.Tensor, right: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """`out[q, j] = <left[q], right[rows[q, j]]>`, 0 where the row is absent: the gradient to the
    weights."""
    if right.shape[0] == 0:
        return left.new_zeros(rows.shape)
    dots = [
        torch.where(row >= 0, (left * right.index_select(0, row.clamp(min=0))).sum(1), 0)
        for row in rows.unbind(1)
    ]
    return torch.stack(dots, 1)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:3])


def _interpolate_gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    features, rows, weights = ctx.saved_tensors
    grad = grad.contiguous()
    to_features = to_weights = None
    if ctx.needs_input_grad[0]:
        to_features = interpolate_grad(grad, rows, weights, features.shape[0])
    if ctx.needs_input_grad[2]:
        to_weights = _products(grad, features, rows).to(weights.dtype)
    return to_features, None, to_weights


def _interpolate_grad_gradient(ctx: Any, second: torch.Tensor) -> tuple[Any, ...]:
    grad, rows, weights = ctx.saved_tensors
    second = second.contiguous()
    to_grad = to_weights = None
    if ctx.needs_input_grad[0]:
        to_grad = interpolate(second, rows, weights)
    if ctx.needs_input_grad[2]:
        to_weights = _products(grad, second, rows).to(weights.dtype)
    return to_grad, None, to_weights, None


interpolate.gradient(_interpolate_gradient, _setup)
interpolate_grad.gradient(_interpolate_grad_gradient, _setup)


def _sizes(name: str, value: float | Sequence[float], axes: int) -> list[float]:
    sizes = [float(v) for v in value] if isinstance(value, Sequence) else [float(value)] * axes
    if len(sizes) != axes:
        _check.fail(name, f"a number or {axes} numbers (one an axis)", value)
    return sizes


def quantize(
    points: torch.Tensor,
    voxel_size: float | Sequence[float],
    origin: Sequence[float] | None = None,
    rounding: str = "floor",
) -> torch.Tensor:
    """Voxel coordinates of points.

    Args:
        points: [N, D], floating, in metres or any unit of `voxel_size`.
        voxel_size: edge of a voxel, or one entry an axis; > 0.
        origin: point that is subtracted first; None means 0.
        rounding: "floor", or "round" (half to even).

    Returns:
        int32 [N, D].

    Raises:
        ValueError: if a point is not finite (names the first row), a coordinate leaves int32 (names
            the extent), or a size is not positive.
        TypeError: if `points` is not floating.
    """
    _check.features("points", points)
    axes = points.shape[1]
    sizes = _sizes("voxel_size", voxel_size, axes)
    if any(not 0 < size < float("inf") for size in sizes):
        _check.fail("voxel_size", "finite and > 0", voxel_size)
    if rounding not in ROUNDINGS:
        _check.fail("rounding", f"one of {ROUNDINGS}", repr(rounding))
    if points.shape[0] == 0:
        return points.new_zeros((0, axes), dtype=torch.int32)
    _check.valued("points", points)
    finite = points.isfinite().all(1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        _check.fail(
            "points", "finite", f"{points[row].tolist()} in row {row}", "drop such rows first"
        )
    wide = _wide(points)
    moved = wide if origin is None else wide - wide.new_tensor(_sizes("origin", origin, axes))
    scaled = moved / wide.new_tensor(sizes)
    cells = scaled.floor() if rounding == "floor" else scaled.round()
    low, high = (bound.cpu().double() for bound in torch.aminmax(cells, dim=0))
    if bool(((low < -_check.INT32_MAX - 1) | (high > _check.INT32_MAX)).any()):
        extent = [f"{a:.6g}..{b:.6g}" for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        _check.fail(
            "points / voxel_size",
            "within int32",
            f"an extent of {', '.join(extent)} voxels",
            "enlarge voxel_size or drop far points",
        )
    return cells.int()


def voxelize(features: torch.Tensor, coords: torch.Tensor, reduce: str = "mean") -> Voxels:
    """Merge points that share a voxel.

    Args:
        features: [N, C] of the points.
        coords: int32 [N, 1 + D], (batch, *voxel) of the points, as `quantize` with a batch column
            makes.
        reduce: "mean", "sum", "max", or "first" (lowest row).

    Returns:
        `Voxels`; `inverse` gives each point's voxel, for `devoxelize`.

    Raises:
        ValueError: if rows, devices or the reduction do not fit.
        TypeError: if dtypes are not floating / int32.
    """
    _check.features("features", features)
    _check.coordinates("coords", coords)
    _check.same_device(features=features, coords=coords)
    _check.same_rows("coords", coords.shape[0], "features", features.shape[0])
    if reduce not in REDUCTIONS:
        _check.fail("reduce", f"one of {REDUCTIONS}", repr(reduce))
    _check.valued("coords", coords)
    first, inverse = cast(tuple[torch.Tensor, torch.Tensor], coordinate_unique(coords))
    counts = count_ids(inverse, len(first))
    if reduce == "first":
        merged = take_rows(features, first)
    else:
        merged = reduce_segments(features, inverse, len(first), reduce)
    return Voxels(merged, coords[first], inverse, counts)


def devoxelize(
    features: torch.Tensor,
    inverse: torch.Tensor | None = None,
    *,
    coords: torch.Tensor | None = None,
    points: torch.Tensor | None = None,
    renormalize: bool = False,
) -> torch.Tensor:
    """Voxel features at points: nearest (each point's own voxel) or trilinear.

    Args:
        features: [M, C] of the voxels.
        inverse: int64 [Q], each point's voxel row, -1 for none: nearest. Checked on the CPU alone.
        coords: int32 [M, 1 + D] of the voxels: trilinear, together with `points`.
        points: [Q, 1 + D] floating, batch id then position in voxel units; a voxel's value sits at
            its integer position.
        renormalize: divide by the sum of the weights present (torchsparse does, MinkowskiEngine
            does not).

    Returns:
        [Q, C].

    Raises:
        ValueError: if neither or both forms are asked for, or shapes and devices do not fit.
        TypeError: if dtypes do not fit.
    """
    _check.features("features", features)
    if (inverse is None) == (coords is None) or (coords is None) != (points is None):
        _check.fail("devoxelize", "given inverse, or coords and points", "another combination")
    if inverse is not None:
        _check.same_device(features=features, inverse=inverse)
        _check_rows(_check.tensor("inverse", inverse, 1), len(features))
        rows = inverse.int()[:, None]
        weights = features.new_ones(rows.shape)
    else:
        assert coords is not None
        assert points is not None
        rows, weights = _corners(features, coords, points)
        if renormalize:
            weights = shares_present(rows, weights)
    return cast(torch.Tensor, interpolate(features.contiguous(), rows, weights.to(features.dtype)))


def _check_rows(inverse: torch.Tensor, num: int) -> None:
    """Refuse rows that no voxel has, where looking costs no readback of a device."""
    plain = type(inverse) is torch.Tensor and inverse.device.type == "cpu"
    if torch.compiler.is_compiling() or not plain or inverse.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(inverse))
    if low < -1 or high >= num:
        got = low if low < -1 else high
        _check.fail("inverse", f"in [-1, {num}), the rows of features", got)


def _corners(
    features: torch.Tensor, coords: torch.Tensor, points: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    _check.coordinates("coords", coords)
    _check.features("points", points)
    _check.same_device(features=features, coords=coords, points=points)
    _check.same_rows("coords", coords.shape[0], "features", features.shape[0])
    if points.shape[1] != coords.shape[1]:
        _check.fail("points", f"of {coords.shape[1]} columns as coords has", points.shape[1])
    table = coordinate_table(_check.valued("coords", coords))
    return cast(
        tuple[torch.Tensor, torch.Tensor], trilinear_map(coords, table, points.contiguous())
    )


def grid_shape(
    voxel_size: Sequence[float], point_range: Sequence[float], half: str = "away"
) -> list[int]:
    """Cells of a box an axis: extent / size in float32, rounded. A point beyond them is outside.

    Args:
        voxel_size: D edges.
        point_range: D lower bounds, then D upper bounds.
        half: where a half goes: "away" from zero (spconv 2.x) or to "even" (spconv 1.x).

    Raises:
        ValueError: if `half` is another word, or a size is not positive.
    """
    if half not in HALVES:
        _check.fail("half", f"one of {HALVES}", repr(half))
    if not all(0 < size < float("inf") for size in voxel_size):
        _check.fail("voxel_size", "finite and > 0", list(voxel_size))
    size, bounds = torch.tensor(voxel_size).float(), torch.tensor(point_range).float()
    cells = ((bounds[len(voxel_size) :] - bounds[: len(voxel_size)]) / size).double()
    whole = cells.round() if half == "even" else (cells.abs() + 0.5).floor() * cells.sign()
    return [int(number) for number in whole.tolist()]


def _wide(points: torch.Tensor) -> torch.Tensor:
    """Half precision as float32: it would round the voxel size itself."""
    return points if points.dtype in (torch.float32, torch.float64) else points.float()


def group_points(
    points: torch.Tensor,
    voxel_size: Sequence[float],
    point_range: Sequence[float],
    max_voxels: int,
    max_points: int,
    half: str = "away",
) -> PointGroups:
    """List the points of each voxel inside a box, first come first served (spconv's PointToVoxel).

    Args:
        points: [N, F], the first D columns are positions in the order of `voxel_size`.
        voxel_size: D edges.
        point_range: D lower bounds, then D upper bounds; points at or beyond the upper bound's cell
            are outside.
        max_voxels: voxels kept, in order of first occurrence.
        max_points: points P kept of a voxel, in input order.
        half: see `grid_shape`.

    Returns:
        `PointGroups`; `indices` run in the reverse axis order (z, y, x for x, y, z sizes), unused
        slots are 0.

    Raises:
        ValueError: if sizes, bounds or limits do not fit.
        TypeError: if `points` is not floating.
    """
    _check.valued("points", _check.features("points", points))
    axes = len(voxel_size)
    _check.positive("max_voxels", max_voxels)
    _check.positive("max_points", max_points)
    if len(point_range) != 2 * axes or points.shape[1] < axes:
        _check.fail(
            "point_range", f"of {2 * axes} bounds for {axes} voxel sizes", list(point_range)
        )
    places = _wide(points[:, :axes])
    size, low = places.new_tensor(voxel_size), places.new_tensor(point_range[:axes])
    shape = places.new_tensor(grid_shape(voxel_size, point_range, half))
    cell = torch.floor((places - low) / size)
    inside = ((cell >= 0) & (cell < shape)).all(1).nonzero().squeeze(1)
    reverse = cell[inside].flip(1).int()
    first, inverse = coordinate_unique(
        torch.cat([reverse.new_zeros((len(reverse), 1)), reverse], 1)
    )
    voxels = min(len(first), max_voxels)
    ids = torch.full((len(points),), -1, dtype=torch.int64, device=points.device)
    ids[inside] = torch.where(inverse < voxels, inverse, -1)
    order, counts = order_keys(inverse), count_ids(inverse, len(first))
    place = torch.empty_like(order)
    start = running_sum(counts) - counts
    place[order] = torch.arange(len(order), device=order.device) - start[inverse[order]]
    keep = (inverse < voxels) & (place < max_points)
    groups = points.new_zeros((voxels, max_points, points.shape[1]))
    groups[inverse[keep], place[keep]] = points[inside[keep]]
    kept = counts[:voxels].clamp(max=max_points).int()
    return PointGroups(groups, reverse[first[:voxels]], kept, ids)
