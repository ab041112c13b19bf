"""Grid clustering: the linear id of the voxel that a point lies in.

Meaning: `grid_cluster` numbers the cells of a regular grid and gives each point its cell.
Formula: `cell_i = trunc((pos_i - start_i) / size_i)`, `cells_i = trunc((end_i - start_i) / size_i)
+ 1`, `id = sum_i cell_i * prod(cells_0 .. cells_{i-1})` (first axis fastest), the divisions in
float32 (float64 for float64; whole positions and sizes divide as whole numbers), ids in int64.
start and end default to the smallest and largest position.
`voxel_grid` adds the batch as a last axis of whole numbers, so that clouds never share a cell.
Gradient: none. Determinism: same ids everywhere. Empty input: no ids.
Errors: size <= 0, sizes that do not match the axes, NaN or infinite positions or corners, whole
positions with sizes or corners that are not, a batch vector that does not match the points, batch
ids < 0, tensors of several devices, a grid of 2^63 cells or more, points so far outside start and
end that no id holds their cell.

Example:
    >>> import torch
    >>> from sparse3d.pointops import grid_cluster
    >>> pos = torch.tensor([[0.0, 0], [11, 9], [2, 8], [2, 2], [8, 3]])
    >>> grid_cluster(pos, torch.tensor([5.0, 5.0])).tolist()
    [0, 5, 3, 0, 1]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from sparse3d._check import fail, fail_type, same_device, tensor

from . import _inputs
from ._clouds import ids_of_pointer

Bound = float | Sequence[float] | torch.Tensor


def axis_values(name: str, value: Bound, pos: torch.Tensor) -> torch.Tensor:
    """One value an axis, in the dtype of the positions; a tensor lies with them or on the CPU."""
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        same_device(**{name: value, "pos": pos})
    if not pos.is_floating_point() and _inputs.numbers(name, value).is_floating_point():
        fail_type(name, "of whole numbers as pos is", "floating", "convert pos with .float()")
    values = _inputs.numbers(name, value, pos.dtype).to(pos.device).reshape(-1)
    if values.numel() == 1:
        values = values.expand(pos.shape[1])
    if values.numel() != pos.shape[1]:
        fail(name, f"of {pos.shape[1]} entries, one an axis", values.numel())
    return values


def corner(name: str, value: Bound, pos: torch.Tensor) -> torch.Tensor:
    """A finite corner of the grid."""
    values = axis_values(name, value, pos)
    if _inputs.values_known(values) and not bool(values.isfinite().all()):
        fail(name, "finite", values.tolist())
    return values


def _positions(pos: torch.Tensor) -> torch.Tensor:
    """Finite positions in float32 or float64, or whole ones as int64."""
    rows = pos[:, None] if pos.ndim == 1 else pos
    if tensor("pos", rows).dtype not in (torch.int32, torch.int64):
        rows = _inputs.points("pos", rows, 2)
        return rows if rows.dtype == torch.float64 else rows.float()
    if rows.ndim != 2 or rows.shape[1] < 1:
        fail("pos", "of shape (N, D)", f"shape {list(rows.shape)}")
    return rows.long()


def _cells(apart: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """How many sizes a distance from the corner is, towards zero."""
    if apart.is_floating_point():
        return (apart / sizes).long()
    return torch.div(apart, sizes, rounding_mode="trunc")


def _check_cells(
    pos: torch.Tensor, low: torch.Tensor, high: torch.Tensor, sizes: torch.Tensor, clouds: int
) -> None:
    """Every id fits int64, and so does what it is computed from."""
    corners = torch.stack([high, pos.amin(0), pos.amax(0)])
    if pos.is_floating_point():
        counted = ((corners - low) / sizes).cpu().double().abs()
        widest = 0.0
    else:  # which are subtracted as whole numbers first
        apart = (corners.cpu().double() - low.cpu().double()).abs()
        counted = apart / sizes.cpu().double()
        widest = float(apart.max())
    cells = [float(cell) for cell in counted[0].floor() + 1]
    furthest = counted.amax(0).floor().tolist()
    place = sum(far * math.prod(cells[:axis]) for axis, far in enumerate(furthest))
    grid = math.prod(cells)
    if max(widest, grid * clouds, place + grid * (clouds - 1)) >= 2.0**63:
        wanted = "large enough for a grid of fewer than 2^63 cells"
        fail("size", wanted, [*cells, clouds] if clouds > 1 else cells)


def _ids(
    pos: torch.Tensor,
    size: Bound,
    start: Bound | None,
    end: Bound | None,
    batch: torch.Tensor | None = None,
) -> torch.Tensor:
    """Linear ids of checked positions; the batch is the last axis."""
    sizes = axis_values("size", size, pos)
    if _inputs.values_known(sizes) and not bool((sizes > 0).all() & sizes.isfinite().all()):
        fail("size", "finite and > 0", sizes.tolist())
    if pos.shape[0] == 0:
        return pos.new_empty(0, dtype=torch.int64)
    low = pos.amin(0) if start is None else corner("start", start, pos)
    high = pos.amax(0) if end is None else corner("end", end, pos)
    if _inputs.values_known(pos):
        _check_cells(pos, low, high, sizes, 1 if batch is None else int(batch.max()) + 1)
    weights = [torch.ones_like(low[0], dtype=torch.int64)]
    for length in (_cells(high - low, sizes) + 1).unbind():
        weights.append(weights[-1] * length)
    ids = (_cells(pos - low, sizes) * torch.stack(weights[:-1])).sum(1)
    return ids if batch is None else ids + batch.long() * weights[-1]


def grid_cluster(
    pos: torch.Tensor, size: Bound, start: Bound | None = None, end: Bound | None = None
) -> torch.Tensor:
    """Linear voxel ids.

    Args:
        pos: (N, D) floating, int64 or int32, or (N,) for one axis.
        size: voxel size, a number or one an axis.
        start: corners of the grid, the extent of the points where None.
        end: as `start`.

    Returns:
        (N,) int64.
    """
    return _ids(_positions(pos), size, start, end)


def _check_batch(batch: torch.Tensor, pos: torch.Tensor) -> None:
    tensor("batch", batch, 1)
    same_device(batch=batch, pos=pos)
    if batch.dtype not in (torch.int32, torch.int64):
        fail_type("batch", "int64 or int32", batch.dtype, "convert with .long()")
    if batch.shape[0] != pos.shape[0]:
        fail("batch", f"of {pos.shape[0]} entries, one a point", batch.shape[0])
    if batch.numel() and _inputs.values_known(batch) and int(batch.min()) < 0:
        fail("batch", ">= 0", int(batch.min()))


def voxel_grid(
    pos: torch.Tensor,
    size: Bound,
    batch: torch.Tensor | None = None,
    start: Bound | None = None,
    end: Bound | None = None,
    *,
    ptr: torch.Tensor | Sequence[int] | None = None,
) -> torch.Tensor:
    """Linear voxel ids that never mix clouds; arguments as `grid_cluster`, plus a batch vector of
    whole numbers >= 0 in any order, or bounds [B + 1] in its place."""
    pos = _positions(pos)
    if ptr is not None:
        batch = ids_of_pointer(ptr, batch, pos.shape[0], pos.device)
    elif batch is not None:
        _check_batch(batch, pos)
    return _ids(pos, size, start, end, batch)
