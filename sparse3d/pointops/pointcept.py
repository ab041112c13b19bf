"""Flat clouds with inclusive offsets: the operators of Pointcept's Point Transformer.

Meaning: clouds lie one after the other, `offset` (b,) holds their inclusive ends. Indices are int32
rows of the whole tensor; -1 where a cloud has too few points, at distance 1e5.
Order and ties: `knn_query` ascending (distance, index). `farthest_point_sampling` starts at each
cloud's first point, keeps taken points in the race and breaks ties as the CUDA reduction over
min(1024, largest power of two in the largest cloud) threads does.
`dilated_knn_query` keeps of `1 + (nsample - 1) * (dilation + 1)` nearest points those at places
`0, dilation + 1, 2 * (dilation + 1), ...`; in a cloud of fewer, n, at places `int(i * step)`, with
`step = ((n - 1) / (nsample - 1) - 1) + 1` in float64.
Formula of `interpolation`: mean of k neighbours weighted by 1 / (distance + 1e-8), with
`soft=True` by 1 / (sqrt(distance^2 + 1e-8) + 1e-8); a missing neighbour weighs nothing.
`divided_ends`: ends of clouds of `size // scale` points each.
Gradient: `grouping` and `interpolation` to the features (and `grouping` and soft `interpolation` to
positions).
Determinism: same bytes on every backend and thread count.
Errors: offsets that are no whole numbers or do not ascend to the number of points, NaN or infinity,
tensors of several devices, an interpolated point whose cloud has no points to take features from.

Example:
    >>> import torch
    >>> from sparse3d.pointops import pointcept
    >>> xyz = torch.tensor([[0.0, 0, 0], [1, 0, 0], [5, 0, 0]])
    >>> index, distance = pointcept.knn_query(2, xyz, torch.tensor([2, 3], dtype=torch.int32))
    >>> index.tolist()
    [[0, 1], [1, 0], [2, -1]]
"""

from __future__ import annotations

import torch

from sparse3d._check import fail, same_device, tensor
from sparse3d.ops.order import count_ids, running_sum
from sparse3d.ops.segment import take_rows

from . import _inputs
from ._clouds import checked_pointer, flat, pointer, whole_numbers
from .flat import answerable, checked_rows, sample
from .fps import reduction_slots
from .knn import search

MISSING = 1e5
_THREADS = 1024


def offset_clouds(
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor | None,
    new_offset: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Checked points, checked queries (the points where None) and the table of clouds."""
    points = checked_rows("xyz", xyz)
    bounds = checked_pointer("offset", offset, points.shape[0], points.device, inclusive=True)
    if new_xyz is None or new_offset is None:
        return points, points, flat(bounds, bounds)
    queries = checked_rows("new_xyz", new_xyz)
    _inputs.alike("xyz", points, "new_xyz", queries)
    new_bounds = checked_pointer(
        "new_offset", new_offset, queries.shape[0], queries.device, inclusive=True
    )
    if new_bounds.shape != bounds.shape:
        fail(
            "new_offset",
            f"of {bounds.numel() - 1} entries as offset has",
            new_bounds.numel() - 1,
        )
    return points, queries, flat(new_bounds, bounds)


def farthest_point_sampling(
    xyz: torch.Tensor, offset: torch.Tensor, new_offset: torch.Tensor
) -> torch.Tensor:
    """(n, 3), ends of clouds, ends of samples -> int32 rows, cloud by cloud."""
    rows = checked_rows("xyz", xyz)
    bounds = checked_pointer("offset", offset, rows.shape[0], rows.device, inclusive=True)
    ends = whole_numbers("new_offset", new_offset, rows.device)
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    sizes = bounds[1:] - bounds[:-1]
    if counts.shape != sizes.shape or bool((counts < 0).any()):
        fail("new_offset", f"ascending with {sizes.numel()} entries", ends.tolist())
    if bool(((sizes == 0) & (counts > 0)).any()):
        fail("new_offset", "without points of an empty cloud", ends.tolist())
    slots = reduction_slots(int(sizes.max()) if sizes.numel() else 1, _THREADS)
    return sample(rows, bounds, counts, bounds[:-1], stay=True, slots=slots).int()


def knn_query(
    nsample: int,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """int32 rows (m, nsample) and Euclidean distances, ascending."""
    points, queries, clouds = offset_clouds(xyz, offset, new_xyz, new_offset)
    _inputs.count("nsample", nsample, 0)
    found = search(queries.detach(), points.detach(), clouds, nsample, "euclidean")
    return found[1].int(), found[0].clamp_max(MISSING)


def dilated_knn_query(
    nsample: int,
    dilation: int,
    xyz: torch.Tensor,
    offset: torch.Tensor,
    new_xyz: torch.Tensor,
    new_offset: torch.Tensor,
) -> torch.Tensor:
    """int32 rows (m, nsample): every (dilation + 1)-th neighbour; a small cloud spreads its own."""
    _inputs.count("nsample", nsample, 1)
    _inputs.count("dilation", dilation, 0)
    total = 1 + (nsample - 1) * (dilation + 1)
    every, _ = knn_query(total, xyz, offset, new_xyz, new_offset)
    sizes = torch.diff(offset.cpu().long(), prepend=torch.zeros(1, dtype=torch.int64)).tolist()
    ends = new_offset.tolist()
    parts = []
    for size, begin, end in zip(sizes, [0, *ends[:-1]], ends, strict=True):
        extra: float = dilation
        if size < total and nsample > 1:
            extra = (size - 1) / (nsample - 1) - 1
        parts.append(every[begin:end, [int((extra + 1) * place) for place in range(nsample)]])
    return torch.cat([every[:0, :nsample], *parts])


def rows_at(values: torch.Tensor, idx: torch.Tensor) -> torch.Tensor:
    """values[idx], zeros where the index is -1."""
    if values.shape[0] == 0:
        return values.new_zeros((*idx.shape, *values.shape[1:]))
    index = idx.long()
    valid = (index >= 0).reshape(*idx.shape, *[1] * (values.ndim - 1))
    near = index.clamp_min(0)
    taken = take_rows(values, near) if values.is_floating_point() else values[near]
    return torch.where(valid, taken, 0)


def grouping(
    idx: torch.Tensor,
    feat: torch.Tensor,
    xyz: torch.Tensor,
    new_xyz: torch.Tensor | None = None,
    with_xyz: bool = False,
) -> torch.Tensor:
    """(m, ns) of (n, c) -> (m, ns, c), or (m, ns, 3 + c) with offsets; -1 gives zeros."""
    tensor("feat", feat)
    same_device(idx=idx, feat=feat, xyz=xyz, new_xyz=new_xyz)
    _inputs.index("idx", idx, 2, feat.shape[0], pad=True)
    grouped = rows_at(feat, idx)
    if not with_xyz:
        return grouped
    centres = xyz if new_xyz is None else new_xyz
    apart = torch.where((idx >= 0)[..., None], rows_at(xyz, idx) - centres[:, None], 0)
    return torch.cat([apart, grouped], -1)


def knn_query_and_group(
    feat: torch.Tensor,
    xyz: torch.Tensor,
    offset: torch.Tensor | None = None,
    new_xyz: torch.Tensor | None = None,
    new_offset: torch.Tensor | None = None,
    idx: torch.Tensor | None = None,
    nsample: int | None = None,
    with_xyz: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Groups of the nearest points and their indices."""
    if idx is None:
        if nsample is None or offset is None:
            fail("nsample and offset", "given without idx", None)
        idx, _ = knn_query(nsample, xyz, offset, new_xyz, new_offset)
    return grouping(idx, feat, xyz, new_xyz, with_xyz), idx


def interpolation(
    xyz: torch.Tensor,
    new_xyz: torch.Tensor,
    feat: torch.Tensor,
    offset: torch.Tensor,
    new_offset: torch.Tensor,
    k: int = 3,
    *,
    soft: bool = False,
) -> torch.Tensor:
    """(m, 3), (n, 3), (m, c) -> (n, c); `soft` distances have a gradient to both positions."""
    points, queries, clouds = offset_clouds(xyz, offset, new_xyz, new_offset)
    same_device(feat=tensor("feat", feat), xyz=points)
    if feat.shape[:1] != points.shape[:1]:
        fail("feat", f"of {points.shape[0]} rows as xyz has", list(feat.shape))
    _inputs.count("k", k, 1)
    answerable("offset", "new_offset", clouds)
    distance, idx = search(queries.detach(), points.detach(), clouds, k, "euclidean")
    if soft:
        apart = queries[:, None] - rows_at(points, idx)
        distance = (apart.square().sum(-1) + 1e-8).sqrt()
    closeness = torch.where(idx >= 0, 1.0 / (distance.clamp_max(MISSING) + 1e-8), 0)
    weight = closeness / closeness.sum(1, keepdim=True)
    return (rows_at(feat, idx) * weight[..., None].to(feat.dtype)).sum(1)


def divided_ends(offset: torch.Tensor, scale: int) -> torch.Tensor:
    """Inclusive ends of clouds that keep every `scale`-th of their points, int32."""
    _inputs.count("scale", scale, 1)
    ends = whole_numbers("offset", offset, offset.device)
    sizes = torch.diff(ends, prepend=ends.new_zeros(1))
    kept = torch.div(sizes, scale, rounding_mode="floor").cumsum(0)
    return kept.to(offset.device, torch.int32)


def offset2batch(offset: torch.Tensor) -> torch.Tensor:
    """Inclusive ends -> int64 batch vector."""
    tensor("offset", offset)
    sizes = torch.diff(offset.long(), prepend=offset.new_zeros(1).long())
    if _inputs.values_known(offset):
        ends = whole_numbers("offset", offset, offset.device)
        checked_pointer(
            "offset",
            ends,
            int(ends[-1]) if ends.numel() else 0,
            offset.device,
            inclusive=True,
            least=0,
        )
    return torch.repeat_interleave(torch.arange(len(offset), device=offset.device), sizes)


def batch2offset(batch: torch.Tensor) -> torch.Tensor:
    """Sorted batch vector -> inclusive ends, int32."""
    pointer("batch", len(tensor("batch", batch)), batch, None, batch.device)
    counts = count_ids(batch, int(batch[-1]) + 1 if len(batch) else 0)
    return running_sum(counts).int()
