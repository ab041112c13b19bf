"""The rules of `indice_key`: a kept map serves a layer only if it is the map that it would make.

`key` is how messages name the layer and its key.
"""

from __future__ import annotations

import torch

from .. import _check
from ..geometry import Geometry
from ..kernel_map import Coordinates
from ..tensor import IndiceData


def serves(
    data: IndiceData, kernel_size: list[int], dilation: list[int], sites: Coordinates
) -> bool:
    """Whether a submanifold layer finds at a glance that the kept map is its own and current."""
    if torch.compiler.is_compiling() or not data.is_subm or sites is not data.inputs:
        return False
    kept = data.kernel_map.geometry
    return (
        data.is_current()
        and list(kept.kernel_size) == kernel_size
        and list(kept.dilation) == dilation
    )


def check_reuse(
    key: str,
    mine: Geometry,
    subm: bool,
    data: IndiceData,
    sites: Coordinates,
    trusts_edited_sites: bool,
) -> None:
    """A layer may take the map that a submanifold layer like it left on the same sites."""
    if torch.compiler.is_compiling():
        return  # `prepare` has checked; integers of a scene are symbols here
    kept = data.geometry
    if not subm or not data.is_subm:
        kind = "a submanifold" if data.is_subm else "a strided, transposed or pooling"
        _check.fail(
            key,
            "shared by submanifold layers alone",
            f"{kind} layer's ({kept}) for this layer ({mine})",
            "give this layer a key of its own, or use SparseInverseConv to undo that layer",
        )
    if mine != kept:
        way_out = "give this layer a key of its own"
        _check.fail(key, f"that of a layer with {mine}", f"one with {kept}", way_out)
    _check_sites(key, sites, data.inputs, by_position=not trusts_edited_sites)


def check_inverse(
    key: str,
    kernel_size: list[int],
    data: IndiceData | None,
    sites: Coordinates,
    trusts_edited_sites: bool,
) -> IndiceData:
    """An inverse layer takes the map of the layer that it undoes, on that layer's outputs."""
    if data is None:
        _check.fail(
            key,
            "left by an earlier layer on this tensor's path",
            "no such key",
            "give the strided layer to undo the same indice_key",
        )
    if torch.compiler.is_compiling():
        return data
    if data.is_subm:
        _check.fail(
            key,
            "that of a strided layer or pool",
            f"a submanifold layer's ({data.geometry})",
            "a submanifold layer keeps its sites: there is nothing to undo",
        )
    if list(data.geometry.kernel_size) != kernel_size:
        _check.fail(
            key,
            f"that of a layer with kernel_size={kernel_size}",
            f"one with {data.geometry}",
            "an inverse layer has the kernel size of the layer it undoes",
        )
    if not data.is_current() and not trusts_edited_sites:
        _check.fail(
            key,
            "that of a layer whose sites stayed as they were",
            "sites edited in place since",
            "edit a clone: x.indices = x.indices.clone()",
        )
    _check_sites(key, sites, data.outputs, by_position=not trusts_edited_sites)
    return data


def _check_sites(key: str, sites: Coordinates, kept: Coordinates, by_position: bool = True) -> None:
    if sites is kept:
        return
    same = sites.spatial_shape == kept.spatial_shape and len(sites) == len(kept)
    alike = not by_position or sites.indices is kept.indices
    if same and (alike or torch.equal(sites.indices, kept.indices)):
        return
    _check.fail(
        key,
        f"used on the sites it was made for ({len(kept)} rows, grid {_grid(kept)})",
        f"{len(sites)} rows, grid {_grid(sites)}" + (" at other positions" if same else ""),
        "give this layer a key of its own",
    )


def _grid(sites: Coordinates) -> str:
    return "none" if sites.spatial_shape is None else str(list(sites.spatial_shape))
