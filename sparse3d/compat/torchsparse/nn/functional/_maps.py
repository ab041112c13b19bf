"""Sites and kernel maps of both versions, in index space (batch, x, y, z)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..... import _check
from .....geometry import (
    Geometry,
    box_around,
    centred_padding,
    coarser,
    cube_offsets,
    finer,
    output_shape,
)
from .....kernel_map import Coordinates, KernelMap
from .....ops.lattice import extent, lattice_places
from .....ops.segment import take_rows
from ...tensor import Kept, SparseTensor, get_allow_negative_coordinates
from ..utils.kernel import axis_starts

Triple = tuple[int, ...]


def centred(size: Triple, stride: Triple, padding: Triple, dilation: Triple) -> Triple:
    """torchsparse 2.x centres odd axes of stride 1, and takes the caller's padding elsewhere."""
    return centred_padding(size, dilation, padding, stride=stride)


def strided(x: SparseTensor, geometry: Geometry, config: Any) -> Kept:
    """The map of a layer that is not transposed, kept by the tensor."""
    key: tuple[Triple, ...] = (x.stride, geometry.kernel_size, geometry.stride, geometry.dilation)
    if not config.get("parity"):  # the peer's key leaves padding out
        key = (*key, geometry.padding)
    sites = x.sites()
    kept: Kept | None = x._caches.kmaps.get(key)
    if kept is None or kept.inputs is not sites:
        kept = x._caches.kmaps[key] = _build(x, sites, geometry, config)
    return kept


def _build(x: SparseTensor, sites: Coordinates, geometry: Geometry, config: Any) -> Kept:
    around = geometry
    if x.contracted and config.get("parity") and config.kmap_mode == "hashmap":
        # The peer's look-up starts there, whatever the padding that its sites are made with.
        around = replace(geometry, padding=tuple((k - 1) // 2 for k in geometry.kernel_size))
    if set(geometry.stride) == {1}:
        return Kept(_same_sites(sites, around), sites, sites, x.spatial_range, x.spatial_range)
    whole_cells = all(
        s in (1, k) for s, k in zip(geometry.stride, geometry.kernel_size, strict=True)
    )
    if not x.contracted:
        pairs, target = _absolute(sites, geometry, whole_cells or x.floors)
        return Kept(pairs, sites, target, None, None)
    after = None
    if x.spatial_range is not None:
        after = (x.spatial_range[0], *output_shape(x.spatial_range[1:4], geometry))
    by_floor = config.downsample_mode == "minkowski" or (
        config.kmap_mode == "hashmap" and whole_cells
    )
    if by_floor:
        pairs, target = sites.floor(geometry, None)
    else:
        pairs, target = sites.footprint(geometry, _grid(x, sites, geometry, after))
    if around != geometry:
        pairs = sites.given(target, around)
    return Kept(pairs, sites, target, x.spatial_range, after)


def _same_sites(sites: Coordinates, geometry: Geometry) -> KernelMap:
    if geometry.is_submanifold:
        return sites.submanifold(geometry.kernel_size, geometry.dilation)
    return sites.given(sites, geometry)


def _grid(
    x: SparseTensor, sites: Coordinates, geometry: Geometry, after: Triple | None
) -> Triple | None:
    """The grid that a strided layer's sites stay in.

    Where no range is stated the peer takes the largest coordinate for it, and keeps every cell
    where the kernel is the stride.
    """
    if get_allow_negative_coordinates():
        return None
    if after is not None:
        shape = after[1:]
    elif len(sites):
        reach = extent(sites.indices)
        cells = all(s in (1, k) for s, k in zip(geometry.stride, geometry.kernel_size, strict=True))
        whole = cells and not any(geometry.padding)
        shape = tuple(reach) if whole else output_shape(reach, geometry)
    else:
        return None
    return tuple(max(n, 1) for n in shape)


def _absolute(
    sites: Coordinates, geometry: Geometry, by_floor: bool
) -> tuple[KernelMap, Coordinates]:
    """Version 1.4: floors where each stride is 1 or the kernel size, else every multiple of the
    stride among coordinate + offset that is not below the smallest coordinate. Before it: floors
    always."""
    if by_floor:
        return sites.floor(geometry, None)
    # The peer adds offsets to find sites, and looks inputs up by adding them too.
    _, indices = sites.reached(geometry.mirrored())
    if len(sites):
        low = sites.indices[:, 1:].amin(0)
        places = lattice_places(indices, geometry.stride)[:, 1:]
        indices = indices[(places >= low).all(1)]
    target = Coordinates(indices.contiguous(), None, sites.batch_size)
    target.trust_distinct()
    return sites.given(target, geometry), target


def undone(x: SparseTensor, size: Triple, stride: Triple, dilation: Triple) -> Kept:
    """The map of the strided layer that a transposed one undoes."""
    fine = finer(x.stride, stride)
    for key, kept in x._caches.kmaps.items():
        if isinstance(kept, Kept) and key[:4] == (fine, size, stride, dilation):
            _check.same_rows("input", len(x.feats), "the strided layer's output", len(kept.outputs))
            return kept
    strides = {key[0]: list(key[1]) for key, kept in x._caches.kmaps.items()}
    _check.fail(
        "transposed convolution",
        f"after a strided one with kernel_size={list(size)}, stride={list(stride)} from stride "
        f"{list(fine)}",
        f"maps {strides}",
        "keep the tensors of one network, or use generative=True",
    )


def generated(x: SparseTensor, geometry: Geometry) -> tuple[KernelMap, Coordinates]:
    """The map of a generative layer: every finer site that an input reaches."""
    sites = x.sites()
    grid = None
    if len(sites) and not get_allow_negative_coordinates():
        reach = extent(sites.indices)
        if x.spatial_range is not None:
            reach = list(x.spatial_range[1:4])
        grid = coarser(reach, geometry.stride)
    return sites.footprint(geometry, grid, transposed=True)


def kernel_geometry(
    x: SparseTensor, size: Triple, stride: Triple, padding: Triple, dilation: Triple
) -> Geometry:
    """The geometry by each version's own anchoring."""
    if x.contracted:
        return Geometry(size, stride, centred(size, stride, padding, dilation), dilation)
    return box_around(cube_offsets(size, axis_starts(size)), stride, dilation)[0]


def weights(kernel: torch.Tensor, order: list[int]) -> torch.Tensor:
    """[K, C_in, C_out] in the peer's order as [C_out, K, C_in], last axis fastest."""
    if order != list(range(len(order))):
        kernel = take_rows(kernel, torch.tensor(order, device=kernel.device))
    return kernel.permute(2, 0, 1)
