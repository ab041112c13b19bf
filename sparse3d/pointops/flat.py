"""Flat point operators: clouds that lie one after the other, told apart by batch vectors or ptr.

Meaning: torch_cluster's operators. `batch` vectors are sorted, `ptr` holds bounds [B + 1]; indices
are rows of the whole tensor. Edges are int64 [2, E], query by query: row 0 the query (`y`), row 1
the reference (`x`), as torch_cluster returns them.
Order and ties: `knn` ascending (distance, index); `radius` ascending index.
Missing neighbours: dropped, a cloud with fewer points than k gives fewer edges, one without points
none; `nearest` refuses a query whose cloud has no point to find.
radius: strict `d < fl32(r * r)` of the double product (dense `ball_query`: of the float32 product).
fps: `ceil(float32(n) * ratio)` points a cloud, the ratio rounded to the points' dtype first, as
torch_cluster does on every device; a taken point leaves the race, as in `furthest_point_sample`.
cosine kNN: rows are divided by their norm in float32 (float64 for float64; a zero row stays zero),
whatever their magnitude, squares added in the order of the axes, and ordered by squared Euclidean
distance, which is `2 * (1 - cos)`.
Graphs without loops: `knn_graph` gives the k nearest others (a point that k + 1 coincident points
of lower index hide still gets k); `radius_graph` the first `max_num_neighbors` others.
Gradient: none, indices only. Determinism: same edges on every backend and thread count.
Errors: unsorted batch vectors, bounds that do not ascend from 0 to the number of points, a batch
vector and bounds for one cloud (`fps` alone takes `ptr` before `batch`), ids outside
[0, batch_size), NaN or infinite points, k < 0, radius not finite, <= 0 or with a square that
underflows float32.

Example:
    >>> import torch
    >>> from sparse3d.pointops import flat
    >>> x = torch.tensor([[-1.0, -1], [-1, 1], [1, -1], [1, 1]])
    >>> flat.knn(x, torch.tensor([[-1.0, 0.5], [1, 0]]), 2).tolist()
    [[0, 0, 1, 1], [1, 0, 2, 3]]
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sparse3d._check import fail, same_device, valued
from sparse3d.ops.order import count_ids, running_sum

from . import _clouds, _inputs
from ._distance import root
from .ball_query import search as _ball_search
from .fps import fps_sample
from .knn import search as _knn_search

__all__ = ["fps", "knn", "knn_graph", "nearest", "radius", "radius_graph"]

HITS_A_CHUNK = 1 << 24
Bounds = torch.Tensor | Sequence[int]


def checked_rows(name: str, value: torch.Tensor) -> torch.Tensor:
    """Rows of points, a vector as points of one coordinate."""
    return _inputs.points(name, value[:, None] if value.ndim == 1 else value, 2)


def _side(
    suffix: str,
    rows: torch.Tensor,
    batch: torch.Tensor | None,
    ptr: Bounds | None,
    batch_size: int | None,
) -> torch.Tensor:
    """Bounds of the clouds of some rows, told by a batch vector or by `ptr`."""
    if ptr is None:
        return _clouds.pointer(f"batch{suffix}", rows.shape[0], batch, batch_size, rows.device)
    name = f"ptr{suffix}"
    if batch is not None:
        fail(name, f"None where batch{suffix} is given", "both", "drop one of them")
    bounds = _clouds.checked_pointer(name, ptr, rows.shape[0], rows.device)
    if batch_size is not None and batch_size != bounds.numel() - 1:
        fail("batch_size", f"{bounds.numel() - 1}, the clouds of {name}", batch_size)
    return bounds


def _pair(
    x: torch.Tensor,
    y: torch.Tensor,
    batch_x: torch.Tensor | None,
    batch_y: torch.Tensor | None,
    batch_size: int | None,
    ptr_x: Bounds | None = None,
    ptr_y: Bounds | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Checked rows of x and y and the table of clouds (y queries x)."""
    x, y = checked_rows("x", x), checked_rows("y", y)
    _inputs.alike("x", x, "y", y)
    if ptr_x is not None or ptr_y is not None:
        return _pair_of_bounds(x, y, batch_x, batch_y, batch_size, ptr_x, ptr_y)
    bounds_x = _side("_x", x, batch_x, None, batch_size)
    if batch_y is batch_x and y.shape[0] == x.shape[0]:
        return x, y, _clouds.flat(bounds_x, bounds_x)
    bounds_y = _side("_y", y, batch_y, None, batch_size)
    clouds = max(bounds_x.numel(), bounds_y.numel())
    if clouds > 2 and batch_size is None and (batch_x is None) != (batch_y is None):
        given, missing = ("batch_y", "batch_x") if batch_x is None else ("batch_x", "batch_y")
        fail(missing, f"given as {given} is, which tells {clouds - 1} clouds apart", None)
    return x, y, _clouds.flat(_extend(bounds_y, clouds), _extend(bounds_x, clouds))


def _pair_of_bounds(
    x: torch.Tensor,
    y: torch.Tensor,
    batch_x: torch.Tensor | None,
    batch_y: torch.Tensor | None,
    batch_size: int | None,
    ptr_x: Bounds | None,
    ptr_y: Bounds | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`_pair` where at least one side has bounds, which tell how many clouds there are."""
    if ptr_x is not None:
        bounds_x = _side("_x", x, batch_x, ptr_x, batch_size)
        size = bounds_x.numel() - 1
        if ptr_y is None and batch_y is None and size > 1:
            fail("ptr_y", f"given as ptr_x is, which tells {size} clouds apart", None)
        bounds_y = _side("_y", y, batch_y, ptr_y, size if ptr_y is None else batch_size)
    else:
        bounds_y = _side("_y", y, batch_y, ptr_y, batch_size)
        size = bounds_y.numel() - 1
        if batch_x is None and size > 1:
            fail("ptr_x", f"given as ptr_y is, which tells {size} clouds apart", None)
        bounds_x = _side("_x", x, batch_x, None, size)
    if bounds_x.numel() != bounds_y.numel():
        fail("ptr_y", f"of {bounds_x.numel()} entries as ptr_x has", bounds_y.numel())
    return x, y, _clouds.flat(bounds_y, bounds_x)


def _graph(
    x: torch.Tensor, batch: torch.Tensor | None, batch_size: int | None, ptr: Bounds | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Checked rows, twice, and the table of clouds that query themselves."""
    x = checked_rows("x", x)
    bounds = _side("", x, batch, ptr, batch_size)
    return x, x, _clouds.flat(bounds, bounds)


def _bounds(name: str, ptr: torch.Tensor | None, rows: torch.Tensor) -> torch.Tensor:
    if ptr is None:
        return torch.tensor([0, rows.shape[0]])
    return _clouds.checked_pointer(name, ptr, rows.shape[0], rows.device)


def pointed(
    x: torch.Tensor, y: torch.Tensor, ptr_x: torch.Tensor | None, ptr_y: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Checked rows of x and y and the table of clouds (y queries x) from bounds."""
    x, y = checked_rows("x", x), checked_rows("y", y)
    _inputs.alike("x", x, "y", y)
    bounds_x, bounds_y = _bounds("ptr_x", ptr_x, x), _bounds("ptr_y", ptr_y, y)
    if bounds_x.numel() != bounds_y.numel():
        fail("ptr_y", f"of {bounds_x.numel()} entries as ptr_x has", bounds_y.numel())
    return x, y, _clouds.flat(bounds_y, bounds_x)


def _extend(bounds: torch.Tensor, size: int) -> torch.Tensor:
    """The same bounds with empty clouds behind."""
    return torch.cat([bounds, bounds[-1:].expand(size - bounds.numel())])


def edges(indices: torch.Tensor, complete: bool) -> torch.Tensor:
    """Edges [2, E] from neighbours [M, k], -1 dropped."""
    queries, k = indices.shape
    out = indices.new_empty(2, queries * k)
    out[0].view(queries, k).copy_(torch.arange(queries, device=indices.device)[:, None])
    out[1].view(queries, k).copy_(indices)
    return out if complete else out[:, out[1] >= 0]


def knn_edges(
    x: torch.Tensor, y: torch.Tensor, clouds: torch.Tensor, k: int, cosine: bool
) -> torch.Tensor:
    """`knn` of checked rows and a checked table of clouds."""
    _inputs.count("k", k, 0)
    sizes = clouds[:, 3] - clouds[:, 2]
    width = min(k, int(sizes.max()) if sizes.numel() else 0)
    if cosine:
        x, y = _directions(x), _directions(y)
    indices = _knn_search(y.detach(), x.detach(), clouds, width)[1]
    return edges(indices, complete=bool((sizes >= width).all()))


def _directions(rows: torch.Tensor) -> torch.Tensor:
    """Rows of norm 1: brought near 1 by a power of two, which rounds nothing and keeps squares
    from the ends of the range, then divided by the root of their squares added axis by axis."""
    wide = _inputs.computed(rows.detach())
    if wide.numel() == 0:
        return wide
    bits, exponent = (
        (torch.int64, 0x7FF << 52) if wide.dtype == torch.float64 else (torch.int32, 0xFF << 23)
    )
    power = (wide.abs().amax(1, keepdim=True).view(bits) & exponent).view(wide.dtype)
    wide = wide / power.clamp_min(torch.finfo(wide.dtype).tiny)
    columns = wide.t().contiguous()
    total = columns[0] * columns[0]
    for column in columns[1:]:
        total = total + column * column
    norm = root(total)[:, None]
    return wide / torch.where(norm > 0, norm, 1)


def knn(
    x: torch.Tensor,
    y: torch.Tensor,
    k: int,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
    *,
    ptr_x: Bounds | None = None,
    ptr_y: Bounds | None = None,
) -> torch.Tensor:
    """Edges from each row of `y` to its k nearest rows of `x` in the same cloud.

    Args:
        x: (N, F) floating references.
        y: (M, F) queries, same dtype and device.
        k: neighbours, >= 0.
        batch_x: sorted batch vectors, one cloud where None.
        batch_y: as `batch_x`.
        cosine: order by cosine distance.
        num_workers: accepted for torch_cluster's sake; threads are torch's.
        batch_size: clouds; the largest batch id + 1 where None.
        ptr_x: bounds [B + 1] of the clouds of `x`, int64, int32 or a sequence, on the points'
            device or the CPU; in place of `batch_x`.
        ptr_y: as `ptr_x`.

    Returns:
        (2, E) int64.
    """
    return knn_edges(*_pair(x, y, batch_x, batch_y, batch_size, ptr_x, ptr_y), k, cosine)


def radius_edges(
    x: torch.Tensor,
    y: torch.Tensor,
    clouds: torch.Tensor,
    r: float,
    max_num_neighbors: int,
    ignore_same_index: bool,
) -> torch.Tensor:
    """`radius` of checked rows and a checked table of clouds."""
    square = _inputs.squared_radius("r", r, x.dtype, flat=True)
    _inputs.count("max_num_neighbors", max_num_neighbors, 0)
    valued("x", x)
    sizes = clouds[:, 3] - clouds[:, 2]
    width = min(max_num_neighbors, int(sizes.max()) if sizes.numel() else 0)
    step = max(1, HITS_A_CHUNK // max(width, 1))
    x, y = _inputs.computed(x.detach()), _inputs.computed(y.detach())
    if y.shape[0] <= step or ignore_same_index:
        indices = _ball_search(y, x, clouds, square, width, ignore_same_index)[1]
        return edges(indices, complete=False)
    parts = []
    for row in range(0, y.shape[0], step):
        part = clouds.clone()
        part[:, :2] = (part[:, :2] - row).clamp(0, min(step, y.shape[0] - row))
        found = edges(_ball_search(y[row : row + step], x, part, square, width)[1], complete=False)
        found[0] += row
        parts.append(found)
    return torch.cat(parts, 1)


def radius(
    x: torch.Tensor,
    y: torch.Tensor,
    r: float,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
    max_num_neighbors: int = 32,
    num_workers: int = 1,
    batch_size: int | None = None,
    ignore_same_index: bool = False,
    *,
    ptr_x: Bounds | None = None,
    ptr_y: Bounds | None = None,
) -> torch.Tensor:
    """Edges from each row of `y` to the first rows of `x` within `r` in the same cloud.

    Args:
        x: as `knn`.
        y: as `knn`.
        batch_x: as `knn`.
        batch_y: as `knn`.
        num_workers: as `knn`.
        batch_size: as `knn`.
        r: radius.
        max_num_neighbors: hits kept a query, lowest index first; for the nearest use `knn`.
        ignore_same_index: leave out the reference whose row number is the query's.
        ptr_x: as `knn`.
        ptr_y: as `knn`.

    Returns:
        (2, E) int64.
    """
    x, y, clouds = _pair(x, y, batch_x, batch_y, batch_size, ptr_x, ptr_y)
    return radius_edges(x, y, clouds, r, max_num_neighbors, ignore_same_index)


def _directed(found: torch.Tensor, flow: str) -> torch.Tensor:
    if flow not in ("source_to_target", "target_to_source"):
        fail("flow", "'source_to_target' or 'target_to_source'", repr(flow))
    return found.flip(0) if flow == "source_to_target" else found


def knn_graph(
    x: torch.Tensor,
    k: int,
    batch: torch.Tensor | None = None,
    loop: bool = False,
    flow: str = "source_to_target",
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
    *,
    ptr: Bounds | None = None,
) -> torch.Tensor:
    """Edges between each row and its k nearest rows, itself included only with `loop`.

    Clouds by `batch` or by `ptr`, bounds as `ptr_x` of `knn`; other arguments as `knn`.

    Returns:
        (2, E) int64, (neighbour, centre) for `source_to_target`, else (centre, neighbour).
    """
    _inputs.count("k", k, 0)
    found = knn_edges(*_graph(x, batch, batch_size, ptr), k if loop else k + 1, cosine)
    return _directed(found if loop else without_self(found, x.shape[0], k), flow)


def without_self(found: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    """Drop the loop of each query; one whose loop is not among its k + 1 loses its last edge."""
    loops = found[0] == found[1]
    has_loop = torch.zeros(rows, dtype=torch.bool, device=found.device)
    has_loop[found[0][loops]] = True
    counts = count_ids(found[0], rows)
    place = torch.arange(found.shape[1], device=found.device)
    place = place - (running_sum(counts) - counts)[found[0]]  # rank of an edge in its query
    surplus = (place == k) & ~has_loop[found[0]]
    return found[:, ~(loops | surplus)]


def radius_graph(
    x: torch.Tensor,
    r: float,
    batch: torch.Tensor | None = None,
    loop: bool = False,
    max_num_neighbors: int = 32,
    flow: str = "source_to_target",
    num_workers: int = 1,
    batch_size: int | None = None,
    *,
    ptr: Bounds | None = None,
) -> torch.Tensor:
    """Edges between each row and the first `max_num_neighbors` rows within `r`.

    Clouds by `batch` or by `ptr`, bounds as `ptr_x` of `knn`; other arguments as `radius`.

    Returns:
        (2, E) int64, directed as `knn_graph`.
    """
    rows = _graph(x, batch, batch_size, ptr)
    found = radius_edges(*rows, r, max_num_neighbors, ignore_same_index=not loop)
    return _directed(found, flow)


def nearest(
    x: torch.Tensor,
    y: torch.Tensor,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
    *,
    ptr_x: Bounds | None = None,
    ptr_y: Bounds | None = None,
) -> torch.Tensor:
    """For each row of `x` the nearest row of `y` in the same cloud, (N,) int64.

    Clouds by sorted batch vectors, or by bounds as `ptr_x` of `knn`.
    """
    x, y, clouds = _pair(x, y, batch_x, batch_y, None, ptr_x, ptr_y)
    clouds = clouds[:, [2, 3, 0, 1, 4]]  # x queries y
    names = ("batch_y", "batch_x") if ptr_y is None else ("ptr_y", "ptr_x")
    return nearest_rows(x, y, clouds, *names)


def answerable(reference: str, query: str, clouds: torch.Tensor) -> None:
    """No query lies in a cloud without reference points."""
    if bool(((clouds[:, 1] > clouds[:, 0]) & (clouds[:, 3] == clouds[:, 2])).any()):
        wanted = f"of at least one point in every cloud of {query}"
        fail(reference, wanted, "a cloud without any")


def nearest_rows(
    x: torch.Tensor,
    y: torch.Tensor,
    clouds: torch.Tensor,
    reference: str = "batch_y",
    query: str = "batch_x",
) -> torch.Tensor:
    """`nearest` of checked rows and a checked table of clouds (x queries y); errors name them."""
    answerable(reference, query, clouds)
    return _knn_search(x.detach(), y.detach(), clouds, 1)[1][:, 0]


def fps(
    x: torch.Tensor,
    batch: torch.Tensor | None = None,
    ratio: float | torch.Tensor | None = None,
    random_start: bool = True,
    batch_size: int | None = None,
    ptr: torch.Tensor | Sequence[int] | None = None,
    *,
    stay: bool = False,
) -> torch.Tensor:
    """Farthest point sampling of a share of each cloud.

    Args:
        x: (N, F) floating.
        batch: sorted batch vector, one cloud where None.
        ratio: share of each cloud, in (0, 1]; 0.5 where None; a tensor may hold one a cloud.
        random_start: start from a random point of each cloud (torch's CPU generator), else from
            its first.
        batch_size: clouds; the largest batch id + 1 where None.
        ptr: bounds [B + 1], take precedence over `batch`.
        stay: keep taken points in the race, as torch_cluster does; see `furthest_point_sample`.

    Returns:
        int64 rows of `x`, cloud by cloud, in the order of taking.
    """
    rows = checked_rows("x", x)
    if ptr is not None:
        bounds = _clouds.checked_pointer("ptr", ptr, rows.shape[0], rows.device)
    else:
        bounds = _clouds.pointer("batch", rows.shape[0], batch, batch_size, rows.device)
    return fps_clouds(rows, bounds, ratio, random_start, stay=stay)


def fps_clouds(
    rows: torch.Tensor,
    bounds: torch.Tensor,
    ratio: float | torch.Tensor | None,
    random_start: bool,
    *,
    stay: bool = False,
) -> torch.Tensor:
    """`fps` of checked rows and bounds; `stay` keeps taken points in the race."""
    degree = bounds[1:] - bounds[:-1]
    share = _inputs.numbers("ratio", 0.5 if ratio is None else ratio)
    if not isinstance(ratio, torch.Tensor):
        share = share.to(rows.dtype)
    elif share.device.type != "cpu":
        same_device(ratio=share, points=rows)
    share = share.cpu()
    if share.numel() not in (1, degree.numel()):
        fail("ratio", f"one number or {degree.numel()}, one a cloud", list(share.shape))
    if not bool(((share > 0) & (share <= 1)).all()):
        fail("ratio", "in (0, 1]", share.tolist())
    counts = (degree.float() * share).ceil().long().minimum(degree)
    start = bounds[:-1]
    if random_start:
        drawn = (torch.rand(degree.numel()) * degree.float()).long()
        start = start + drawn.minimum((degree - 1).clamp_min(0))
    return sample(rows, bounds, counts, start, stay=stay)


def sample(
    rows: torch.Tensor,
    bounds: torch.Tensor,
    counts: torch.Tensor,
    start: torch.Tensor,
    *,
    stay: bool = False,
    slots: int = 0,
) -> torch.Tensor:
    """Take `counts[b]` rows of each cloud, starting from row `start[b]`; rows of the tensor."""
    ends = counts.cumsum(0)
    clouds = torch.stack(
        [bounds[:-1], bounds[1:], ends - counts, ends, start, torch.zeros_like(start)], 1
    )
    total = int(ends[-1]) if ends.numel() else 0
    taken: torch.Tensor = fps_sample(
        _inputs.computed(rows.detach()), clouds, total, stay, False, slots, "auto"
    )
    return taken
