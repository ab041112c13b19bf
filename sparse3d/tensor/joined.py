"""Several tensors as one, and one as several: sums, channels side by side, batches, duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from .. import _check
from ..kernel_map import Coordinates
from ..ops.coordinates import unique
from ..ops.order import order_keys
from ..ops.segment import reduce_segments, take_rows
from .sparse_conv_tensor import SparseConvTensor, same_sites


def _check_family(name: str, tensors: Sequence[SparseConvTensor]) -> None:
    if not tensors:
        _check.fail(name, "given at least one tensor", "none")
    first = tensors[0]
    for other in tensors[1:]:
        if other.spatial_shape != first.spatial_shape or other.batch_size != first.batch_size:
            _check.fail(
                f"{name}: tensors",
                "of one grid and batch size",
                f"{first.spatial_shape} x {first.batch_size} and "
                f"{other.spatial_shape} x {other.batch_size}",
            )
        _check.same_device(first=first.features, other=other.features)
    for x in tensors:
        _check.same_rows(f"{name}: features", len(x.features), "indices", len(x))


def _union(tensors: Sequence[SparseConvTensor]) -> tuple[Coordinates, list[torch.Tensor]]:
    """Union of the sites, and each tensor's rows in it."""
    first, inverse = unique(torch.cat([x.indices for x in tensors]))
    joined = torch.cat([x.indices for x in tensors])[first]
    union = Coordinates(joined, tensors[0].spatial_shape, tensors[0].batch_size)
    union.trust_distinct()
    return union, list(torch.split(inverse, [len(x) for x in tensors]))


def add(*tensors: SparseConvTensor) -> SparseConvTensor:
    """Sum over the union of the sites; a tensor counts 0 where it has no site.

    Args:
        tensors: of one grid, batch size and channel count.

    Returns:
        Rows and maps of the first tensor that has every site, if one has; else rows by batch id,
        then first occurrence, tensors in argument order.

    Raises:
        ValueError: if grids, batch sizes, channels or devices differ.
    """
    _check_family("add", tensors)
    widths = {x.features.shape[1] for x in tensors}
    if len(widths) > 1:
        _check.fail("add: features", "of one channel count", sorted(widths))
    union, rows = _union(tensors)
    values = torch.cat([x.features for x in tensors])
    total = reduce_segments(values, torch.cat(rows), len(union))
    for x, place in zip(tensors, rows, strict=True):
        if len(x) == len(union) and _is_permutation(place):
            return x.replace_feature(take_rows(total, place))
    return tensors[0].on_sites(total, union, {})


def _is_permutation(rows: torch.Tensor) -> bool:
    met = torch.zeros(len(rows), dtype=torch.bool, device=rows.device)
    met[rows] = True
    return bool(met.all())


def cat(*tensors: SparseConvTensor) -> SparseConvTensor:
    """Join channels; over the union of the sites where they differ, with 0 for absent ones.

    Args:
        tensors: of one grid and batch size.

    Returns:
        Sites and maps of the first tensor if all share them, else rows by batch id, then first
        occurrence, tensors in argument order.

    Raises:
        ValueError: if grids, batch sizes or devices differ.
    """
    _check_family("cat", tensors)
    first = tensors[0]
    if all(same_sites(first, other) for other in tensors[1:]):
        return first.replace_feature(torch.cat([x.features for x in tensors], 1))
    union, rows = _union(tensors)
    spread = [
        reduce_segments(x.features, place, len(union))
        for x, place in zip(tensors, rows, strict=True)
    ]
    return first.on_sites(torch.cat(spread, 1), union, {})


def coalesce(x: SparseConvTensor, reduce: str = "sum") -> SparseConvTensor:
    """Merge rows that share a site.

    Args:
        x: a tensor built with `check=False`, or whose indices were assigned.
        reduce: "sum", "mean" or "max".

    Returns:
        Distinct rows by batch id, then first occurrence.

    Raises:
        ValueError: if the reduction is not one of these.
    """
    sites = x.sites("coalesce")
    first, inverse = unique(x.indices)
    merged = Coordinates(x.indices[first], sites.spatial_shape, sites.batch_size)
    merged.trust_distinct()
    return x.on_sites(reduce_segments(x.features, inverse, len(first), reduce), merged, {})


def collate(samples: Sequence[SparseConvTensor]) -> SparseConvTensor:
    """Join samples into one batch, as a DataLoader's `collate_fn`: batch ids are renumbered.

    Args:
        samples: of one grid (or none) and channel count; each keeps its own batch size.

    Returns:
        Samples in order; `batch_size` is the sum of theirs.

    Raises:
        ValueError: if grids differ, or there is no sample.
    """
    if not samples:
        _check.fail("collate", "given at least one sample", "none")
    grids = {None if x.spatial_shape is None else tuple(x.spatial_shape) for x in samples}
    if len(grids) > 1:
        way_out = "construct every sample with the same spatial_shape"
        _check.fail("collate: samples", "of one grid", sorted(map(str, grids)), way_out)
    parts, start = [], 0
    for x in samples:
        _check.same_rows("collate: features", len(x.features), "indices", len(x))
        moved = x.indices.clone()
        moved[:, 0] += start
        parts.append(moved)
        start += x.batch_size
    features = torch.cat([x.features for x in samples])
    made = SparseConvTensor(
        features, torch.cat(parts), samples[0].spatial_shape, start, check=False
    )
    if all(x.coordinates.known_distinct() for x in samples):
        made.coordinates.trust_distinct()
    return made


def decompose(x: SparseConvTensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Features and indices of each sample in turn, rows in their order."""
    x.sites("decompose")
    batch = x.indices[:, 0].contiguous()
    order = order_keys(batch)
    features, indices = take_rows(x.features, order), x.indices[order]
    # On the host: a batch may count billions, most of them empty.
    present, counts = torch.unique_consecutive(batch[order].cpu(), return_counts=True)
    end, lengths = 0, dict(zip(present.tolist(), counts.tolist(), strict=True))
    for sample in range(x.batch_size):
        begin, end = end, end + lengths.get(sample, 0)
        yield features[begin:end], indices[begin:end]
