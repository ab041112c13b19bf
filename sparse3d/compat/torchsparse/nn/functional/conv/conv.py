"""Convolution, and the maps it stands on."""

from __future__ import annotations

from typing import Any

import torch

from ...... import _check
from ......geometry import Geometry, centred_padding, coarser, divides, finer
from ......kernel_map import Coordinates
from ......ops.conv import conv
from ......ops.lattice import batch_count
from ....tensor import SparseTensor
from ....utils.utils import make_ntuple
from ...utils.kernel import tap_order
from .. import _maps
from .conv_config import resolved

__all__ = [
    "build_kernel_map",
    "conv3d",
    "convert_transposed_out_in_map",
    "spdownsample",
    "spupsample_generative",
    "transpose_kernel_map",
]


def conv3d(
    input: SparseTensor,
    weight: torch.Tensor,
    kernel_size: Any,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    config: Any = None,
    transposed: bool = False,
    generative: bool = False,
    training: bool = False,
    *,
    parity: bool = False,
    **unused: Any,
) -> SparseTensor:
    """Convolve.

    Args:
        input: N rows, C_in channels.
        weight: [K, C_in, C_out] in the peer's order of taps, or [C_in, C_out] for one tap.
        kernel_size: one integer, or one an axis.
        bias: [C_out] or None.
        stride: likewise.
        padding: likewise; of axes that are even or strided.
        dilation: likewise.
        config: the peer's configuration; `kmap_mode` and `downsample_mode` choose sites.
        transposed: undo the strided layer of the same numbers.
        generative: make every finer site that an input reaches.
        training: accepted for the peer's signature.
        parity: repeat the peer's faults: dilation is ignored, maps are kept without regard to
            padding, `kmap_mode="hashmap"` centres kernels on the sites that the padding gives.
        **unused: `epsilon`, `mm_thresh` and `kmap_mode` of version 1.4.

    Returns:
        M rows, C_out channels.
    """
    size, steps, shifts, spreads = (
        make_ntuple(value, ndim=3) for value in (kernel_size, stride, padding, dilation)
    )
    Geometry(size, steps, shifts, spreads)  # refuses zeros
    settings = resolved(config)
    settings["parity"] = parity
    if parity and input.contracted:
        spreads = (1, 1, 1)
    _check.channels("conv3d", weight.shape[-2], input.feats.shape[1])
    if size == steps == (1, 1, 1):
        matrix = weight.reshape(1, *weight.shape[-2:]).permute(2, 0, 1)
        return input.like(conv(input.feats, matrix, input.sites().identity(), bias))
    kernel = _maps.weights(weight.reshape(-1, *weight.shape[-2:]), tap_order(size))
    if not transposed:
        geometry = _maps.kernel_geometry(input, size, steps, shifts, spreads)
        kept = _maps.strided(input, geometry, settings)
        out = conv(input.feats, kernel, kept.pairs, bias)
        return input.on(out, kept.outputs, coarser(input.stride, steps), kept.after)
    if not divides(steps, input.stride):
        _check.fail("stride", f"a divisor of the tensor's {input.stride}", steps)
    if generative:
        return _generate(input, kernel, bias, size, steps, spreads)
    kept = _maps.undone(input, size, steps, spreads)
    out = conv(input.feats, kernel, kept.pairs.transposed(), bias)
    return input.on(out, kept.inputs, finer(input.stride, steps), kept.before)


def _generate(
    input: SparseTensor,
    kernel: torch.Tensor,
    bias: torch.Tensor | None,
    size: tuple[int, ...],
    steps: tuple[int, ...],
    spreads: tuple[int, ...],
) -> SparseTensor:
    anchor = centred_padding(size, spreads)
    pairs, target = _maps.generated(input, Geometry(size, steps, anchor, spreads))
    out = conv(input.feats, kernel, pairs, bias)
    after = None
    if input.spatial_range is not None:
        after = (input.spatial_range[0], *coarser(input.spatial_range[1:4], steps))
    fine = finer(input.stride, steps)
    input._caches.kmaps.clear()
    input._caches.cmaps.pop(fine, None)
    return input.on(out, target, fine, after)


def spdownsample(
    _coords: torch.Tensor,
    stride: Any = 2,
    kernel_size: Any = 2,
    padding: Any = 0,
    spatial_range: tuple[int, ...] | None = None,
    downsample_mode: str = "spconv",
) -> torch.Tensor:
    """Sites of a strided layer: (batch, x, y, z), divided by the stride."""
    x = SparseTensor(_coords.new_zeros((len(_coords), 1), dtype=torch.float32), _coords)
    size, steps, shifts = (make_ntuple(v, ndim=3) for v in (kernel_size, stride, padding))
    geometry = Geometry(size, steps, shifts, (1, 1, 1))
    sites = x.sites()
    whole = all(s in (1, k) for s, k in zip(steps, size, strict=True))
    if whole or downsample_mode == "minkowski":
        return sites.floor(geometry, None)[1].indices
    after = spatial_range
    return sites.footprint(geometry, _maps._grid(x, sites, geometry, after))[1].indices


def spupsample_generative(
    _coords: torch.Tensor,
    stride: Any = 2,
    kernel_size: Any = 2,
    padding: Any = 0,
    spatial_range: tuple[int, ...] | None = None,
) -> torch.Tensor:
    """Sites of a generative layer: every finer one that a coarse one reaches."""
    size, steps = (make_ntuple(v, ndim=3) for v in (kernel_size, stride))
    anchor = centred_padding(size, (1, 1, 1))
    grid = None if spatial_range is None else tuple(spatial_range[1:4])
    geometry = Geometry(size, steps, anchor, (1, 1, 1))
    return (
        Coordinates(_coords, None, batch_count(_coords))
        .footprint(geometry, grid, transposed=True)[1]
        .indices
    )


def build_kernel_map(
    _coords: torch.Tensor,
    input_node_num: int,
    kernel_size: Any = 2,
    stride: Any = 2,
    padding: Any = 0,
    hashmap_keys: Any = None,
    hashmap_vals: Any = None,
    spatial_range: tuple[int, ...] | None = None,
    mode: str = "hashmap",
    dataflow: Any = None,
    downsample_mode: str = "spconv",
    training: bool = False,
    ifsort: bool = False,
    generative: bool = False,
    split_mask_num: int = 1,
    split_mask_num_bwd: int = 1,
    *,
    parity: bool = False,
) -> dict[str, Any]:
    """A kernel map as a dictionary: `coords`, `out_in_map` [M, K] (-1: none), `sizes`,
    `spatial_range`; taps with the last axis fastest.

    Args:
        _coords: int32 [N, 4] (batch, x, y, z).
        input_node_num: N.
        kernel_size: one integer, or one an axis.
        stride: likewise.
        padding: likewise.
        hashmap_keys: accepted, as is what is not named here.
        hashmap_vals: see `hashmap_keys`.
        spatial_range: (B, X, Y, Z) of the inputs, or None.
        mode: "hashmap" or "hashmap_on_the_fly".
        dataflow: see `hashmap_keys`.
        downsample_mode: which sites strided layers make.
        training: see `hashmap_keys`.
        ifsort: see `hashmap_keys`.
        generative: see `hashmap_keys`.
        split_mask_num: see `hashmap_keys`.
        split_mask_num_bwd: see `hashmap_keys`.
        parity: repeat the peer's fault: "hashmap" centres kernels on the sites that the padding
            gives.
    """
    x = SparseTensor(_coords.new_zeros((len(_coords), 1), dtype=torch.float32), _coords)
    x.spatial_range = spatial_range
    size, steps, shifts = (make_ntuple(v, ndim=3) for v in (kernel_size, stride, padding))
    settings = resolved({"kmap_mode": mode, "downsample_mode": downsample_mode})
    settings["parity"] = parity
    geometry = _maps.kernel_geometry(x, size, steps, shifts, (1, 1, 1))
    kept = _maps.strided(x, geometry, settings)
    return {
        "coords": kept.outputs.indices,
        "out_in_map": kept.pairs.neighbours(),
        "sizes": (input_node_num, len(kept.outputs)),
        "spatial_range": kept.after,
        "hashmap_keys": None,
        "hashmap_vals": None,
    }


def convert_transposed_out_in_map(out_in_map: torch.Tensor, size: int) -> torch.Tensor:
    """A map [M, K] of inputs as a map [size, K] of outputs."""
    made = out_in_map.new_full((size, out_in_map.shape[1]), -1)
    rows, taps = (out_in_map >= 0).nonzero(as_tuple=True)
    made[out_in_map[rows, taps].long(), taps] = rows.to(made.dtype)
    return made


def transpose_kernel_map(
    kmap: dict[str, Any],
    ifsort: bool = False,
    training: bool = False,
    split_mask_num: int = 1,
    split_mask_num_bwd: int = 1,
) -> dict[str, Any]:
    """The dictionary with `out_in_map_t` added."""
    kmap["out_in_map_t"] = convert_transposed_out_in_map(kmap["out_in_map"], kmap["sizes"][0])
    return kmap
