"""Grid clustering: the linear id of the voxel that a point lies in.

Meaning: `grid_cluster` numbers the cells of a regular grid and gives each point its cell.
Formula: `cell_i = trunc((pos_i - start_i) / size_i)`, `cells_i = trunc((end_i - start_i) / size_i)
+ 1`, `id = sum_i cell_i * prod(cells_0 .. cells_{i-1})` (first axis fastest), the divisions in the
positions' dtype (whole positions and sizes divide as whole numbers), ids in int64. start and end
default to the smallest and largest position.
`voxel_grid` adds the batch as a last axis of size 1, so that clouds never share a cell.
Gradient: none. Determinism: same ids everywhere. Empty input: no ids.
Errors: size <= 0, sizes that do not match the axes, NaN or infinite positions or corners, whole
positions with sizes or corners that are not, a batch vector that does not match the points, tensors
of several devices, a grid of more than 2^63 cells.

Example:
    >>> import torch
    >>> from sparse3d.pointops import grid_cluster
    >>> pos = torch.tensor([[0.0, 0], [11, 9], [2, 8], [2, 2], [8, 3]])
    >>> grid_cluster(pos, torch.tensor([5.0, 5.0])).tolist()
    [0, 5, 3, 0, 1]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sparse3d._check import fail, fail_type, same_device, tensor

from . import _inputs

Bound = float | Sequence[float] | torch.Tensor


def axis_values(name: str, value: Bound, pos: torch.Tensor) -> torch.Tensor:
    """One value an axis, in the dtype of the positions; a tensor lies with them or on the CPU."""
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        same_device(**{name: value, "pos": pos})
    if not pos.is_floating_point() and torch.as_tensor(value).is_floating_point():
        fail_type(name, "of whole numbers as pos is", "floating", "convert pos with .float()")
    values = torch.as_tensor(value, dtype=pos.dtype, device=pos.device).reshape(-1)
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
    """Finite floating positions, or whole ones as int64."""
    rows = pos[:, None] if pos.ndim == 1 else pos
    if tensor("pos", rows).dtype not in (torch.int32, torch.int64):
        return _inputs.points("pos", rows, 2)
    if rows.ndim != 2 or rows.shape[1] < 1:
        fail("pos", "of shape (N, D)", f"shape {list(rows.shape)}")
    return rows.long()


def _cells(apart: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """How many sizes a distance from the corner is, towards zero."""
    if apart.is_floating_point():
        return (apart / sizes).long()
    return torch.div(apart, sizes, rounding_mode="trunc")


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
    pos = _positions(pos)
    sizes = axis_values("size", size, pos)
    if _inputs.values_known(sizes) and not bool((sizes > 0).all() & sizes.isfinite().all()):
        fail("size", "finite and > 0", sizes.tolist())
    if pos.shape[0] == 0:
        return pos.new_empty(0, dtype=torch.int64)
    low = pos.amin(0) if start is None else corner("start", start, pos)
    high = pos.amax(0) if end is None else corner("end", end, pos)
    cells = _cells(high - low, sizes) + 1
    if _inputs.values_known(cells) and float(cells.cpu().double().prod()) >= 2.0**63:
        fail("size", "large enough for a grid of fewer than 2^63 cells", cells.tolist())
    weights = [torch.ones_like(cells[0])]
    for length in cells[:-1].unbind():
        weights.append(weights[-1] * length)
    return (_cells(pos - low, sizes) * torch.stack(weights)).sum(1)


def _check_batch(batch: torch.Tensor, pos: torch.Tensor) -> None:
    tensor("batch", batch, 1)
    same_device(batch=batch, pos=pos)
    if batch.dtype not in (torch.int32, torch.int64):
        fail_type("batch", "int64 or int32", batch.dtype, "convert with .long()")
    if batch.shape[0] != pos.shape[0]:
        fail("batch", f"of {pos.shape[0]} entries, one a point", batch.shape[0])


def voxel_grid(
    pos: torch.Tensor,
    size: Bound,
    batch: torch.Tensor | None = None,
    start: Bound | None = None,
    end: Bound | None = None,
) -> torch.Tensor:
    """Linear voxel ids that never mix clouds; arguments as `grid_cluster`, plus a batch vector."""
    pos = _positions(pos)
    axes = pos.shape[1]
    if batch is not None:
        _check_batch(batch, pos)
    ids = pos.new_zeros(pos.shape[0], dtype=torch.int64) if batch is None else batch
    one = pos.new_ones(1)
    last = ids.max()[None].to(pos.dtype) if ids.numel() else 0 * one
    plain = pos[:, :axes]
    return grid_cluster(
        torch.cat([plain, ids[:, None].to(pos.dtype)], 1),
        torch.cat([axis_values("size", size, plain), one]),
        None if start is None else torch.cat([axis_values("start", start, plain), 0 * one]),
        None if end is None else torch.cat([axis_values("end", end, plain), last]),
    )
