"""spconv's `ops`: kernel maps as tables, output sizes, and the operators on tables.

Layers do not go this way; it is for code that keeps pair tables of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from .. import _check
from ..geometry import Geometry, output_shape, submanifold_padding, transposed_output_shape
from ..kernel_map import Coordinates, KernelMap
from ..ops.conv import conv
from ..ops.order import count_ids, order_keys, running_sum
from ..ops.pool import max_pool, mean_pool
from ._convolution import activate, activation_name
from ._pair_tables import (
    map_from_neighbours,
    map_from_pairs,
    masked_order,
    neighbour_table,
    pair_table,
)
from .core import ConvAlgo, ThrustSortAllocator, expand_nd

__all__ = [
    "DEBUG",
    "DEBUG_INT64_HASH_K",
    "INT32_MAX",
    "ConvAlgo",
    "ThrustSortAllocator",
    "fused_indice_conv",
    "get_conv_output_size",
    "get_deconv_output_size",
    "get_indice_pairs",
    "get_indice_pairs_implicit_gemm",
    "global_pool_rearrange",
    "implicit_gemm",
    "implicit_gemm_backward",
    "indice_avgpool_implicit_gemm",
    "indice_avgpool_implicit_gemm_backward",
    "indice_conv",
    "indice_conv_backward",
    "indice_maxpool",
    "indice_maxpool_backward",
    "indice_maxpool_implicit_gemm",
    "indice_maxpool_implicit_gemm_backward",
    "maximum_value_int_",
]

Sizes = Sequence[int]
DEBUG = False
DEBUG_INT64_HASH_K = False
INT32_MAX = _check.INT32_MAX


def get_conv_output_size(
    input_size: Sizes, kernel_size: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> list[int]:
    """Grid of a strided layer; a kernel size of -1 spans its axis and leaves 1."""
    whole = [n if k == -1 else k for n, k in zip(input_size, kernel_size, strict=True)]
    geometry = Geometry(tuple(whole), tuple(stride), tuple(padding), tuple(dilation))
    sizes = output_shape(input_size, geometry)
    return [1 if k == -1 else size for k, size in zip(kernel_size, sizes, strict=True)]


def get_deconv_output_size(
    input_size: Sizes,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    output_padding: Sizes,
) -> list[int]:
    """Grid of a transposed layer, dilation counted (spconv 2.3.8 leaves it out).

    Raises:
        ValueError: if a kernel size is not positive.
    """
    if min(kernel_size) < 1:
        _check.fail("kernel_size", ">= 1 on every axis of a transposed layer", list(kernel_size))
    geometry = Geometry(tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation))
    return list(transposed_output_shape(input_size, geometry, output_padding))


def _build(
    indices: torch.Tensor,
    batch_size: int,
    spatial_shape: Sizes,
    geometry: Geometry,
    out_padding: Sizes,
    subm: bool,
    transpose: bool,
) -> tuple[KernelMap, torch.Tensor]:
    sites = Coordinates(_check.coordinates("indices", indices), spatial_shape, batch_size)
    if subm:
        return sites.submanifold(geometry.kernel_size, geometry.dilation), indices
    if transpose:
        grid = transposed_output_shape(spatial_shape, geometry, out_padding)
    else:
        grid = output_shape(spatial_shape, geometry)
    _check.grid("get_indice_pairs", grid, spatial_shape)
    pairs, target = sites.footprint(geometry, grid, transposed=transpose)
    return pairs, target.indices


def _geometry(
    ndim: int, ksize: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, subm: bool
) -> Geometry:
    sizes, steps, shifts, spreads = (
        tuple(expand_nd(ndim, value)) for value in (ksize, stride, padding, dilation)
    )
    if subm:
        steps, shifts = (1,) * ndim, submanifold_padding(sizes, spreads)
    return Geometry(sizes, steps, shifts, spreads)


def get_indice_pairs(
    indices: torch.Tensor,
    batch_size: int,
    spatial_shape: Sizes,
    algo: ConvAlgo | None,
    ksize: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    out_padding: Sizes,
    subm: bool = False,
    transpose: bool = False,
    num_out_act_bound: int = -1,
    *,
    count_all: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output sites and the pair table of a layer.

    Args:
        indices: int32 [N, 1 + D].
        batch_size: number of samples.
        spatial_shape: grid of the inputs.
        algo: accepted for spconv's signature.
        ksize: kernel size, one entry an axis; likewise the next three.
        stride: ignored by a submanifold layer.
        padding: ignored by a submanifold layer.
        dilation: of the kernel.
        out_padding: extra grid of a transposed layer.
        subm: outputs are the inputs.
        transpose: `q = p * stride - padding + t * dilation`.
        num_out_act_bound: keep at most so many output rows; -1 for all.
        count_all: count every tap's pairs of a submanifold layer too, as spconv 1.x does.

    Returns:
        Output indices int32 [M, 1 + D], pairs int32 [2, K, N] padded with -1, counts int32 [K] (of
        a submanifold layer, those of the first half).
    """
    ndim = indices.shape[1] - 1
    geometry = _geometry(ndim, ksize, stride, padding, dilation, subm)
    extra = expand_nd(ndim, out_padding)
    pairs, out = _build(indices, batch_size, spatial_shape, geometry, extra, subm, transpose)
    if 0 < num_out_act_bound < len(out):
        table = neighbour_table(pairs)[:, :num_out_act_bound]
        pairs, out = map_from_neighbours(table, len(indices)), out[:num_out_act_bound]
    return out, *pair_table(pairs, subm=subm and not count_all)


def get_indice_pairs_implicit_gemm(
    indices: torch.Tensor,
    batch_size: int,
    spatial_shape: Sizes,
    algo: ConvAlgo | None,
    ksize: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    out_padding: Sizes,
    subm: bool = False,
    transpose: bool = False,
    is_train: bool = True,
    alloc: ThrustSortAllocator | None = None,
    timer: object = None,
    num_out_act_bound: int = -1,
    direct_table: bool = True,
    do_sort: bool = True,
) -> tuple[Any, ...]:
    """Output sites and the neighbour tables of a layer, as spconv's implicit GEMM takes them.

    Returns:
        Output indices, counts [K], `pair_fwd` [K, M], `pair_bwd` [K, N] (empty for submanifold
        layers and inference), lists of one occupancy mask [M, words] and one row order [M] for each
        direction, and the list of tap masks.
    """
    ndim = indices.shape[1] - 1
    geometry = _geometry(ndim, ksize, stride, padding, dilation, subm)
    extra = expand_nd(ndim, out_padding)
    pairs, out = _build(indices, batch_size, spatial_shape, geometry, extra, subm, transpose)
    forward = neighbour_table(pairs)
    if 0 < num_out_act_bound < len(out):
        forward, out = forward[:, :num_out_act_bound].contiguous(), out[:num_out_act_bound]
        pairs = map_from_neighbours(forward, len(indices))
    mask, order = masked_order(forward, do_sort)
    backward = torch.empty(0)
    back_mask: list[torch.Tensor] = []
    back_order: list[torch.Tensor] = []
    if is_train and not subm:
        backward = neighbour_table(pairs.transposed())
        single, rows = masked_order(backward, do_sort)
        back_mask, back_order = [single], [rows]
    counts = pairs.splits.diff().int().to(indices.device)
    tap_masks = [np.array([0xFFFFFFFF], dtype=np.uint32)]
    return (
        out,
        counts,
        forward,
        backward,
        [mask],
        back_mask,
        [order],
        back_order,
        tap_masks,
    )


def indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    inverse: bool = False,
    subm: bool = False,
    algo: ConvAlgo | None = None,
    timer: object = None,
    bias: torch.Tensor | None = None,
    act_alpha: float = 0.0,
    act_beta: float = 0.0,
    act_type: object = None,
) -> torch.Tensor:
    """Convolve over a pair table; differentiable.

    Args:
        features: [N, C_in].
        filters: [C_out, *kernel_size, C_in].
        indice_pairs: int32 [2, K, N].
        indice_pair_num: int32 [K].
        num_activate_out: M.
        inverse: the table's roles are swapped.
        subm: the table counts its first half only.
        algo: accepted for spconv's signature, as is `timer`.
        timer: see `algo`.
        bias: [C_out] or None.
        act_alpha: slope of leaky_relu below zero.
        act_beta: accepted for spconv's signature.
        act_type: None, "relu", "leaky_relu", "sigmoid", or spconv's enum.

    Returns:
        [M, C_out].
    """
    pairs = map_from_pairs(
        indice_pairs,
        indice_pair_num,
        len(_check.features("features", features)),
        int(num_activate_out),
        subm=subm,
        inverse=inverse,
    )
    return activate(conv(features, filters, pairs, bias), activation_name(act_type), act_alpha)


def indice_conv_backward(
    features: torch.Tensor,
    filters: torch.Tensor,
    out_bp: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    inverse: bool = False,
    subm: bool = False,
    algo: ConvAlgo | None = None,
    timer: object = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of `indice_conv` to features and filters."""
    with torch.enable_grad():
        rows, kernel = features.detach().requires_grad_(), filters.detach().requires_grad_()
        out = indice_conv(rows, kernel, indice_pairs, indice_pair_num, len(out_bp), inverse, subm)
    return cast(tuple[torch.Tensor, torch.Tensor], torch.autograd.grad(out, (rows, kernel), out_bp))


def fused_indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    bias: torch.Tensor | None,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    inverse: bool = False,
    subm: bool = False,
) -> torch.Tensor:
    """`indice_conv` with a bias; spconv 2.3.8 raises."""
    return indice_conv(
        features, filters, indice_pairs, indice_pair_num, num_activate_out, inverse, subm, bias=bias
    )


def implicit_gemm(
    features: torch.Tensor,
    filters: torch.Tensor,
    pair_fwd: torch.Tensor,
    pair_mask_fwd_splits: Sequence[torch.Tensor] = (),
    mask_argsort_fwd_splits: Sequence[torch.Tensor] = (),
    num_activate_out: int = -1,
    masks: Sequence[Any] = (),
    is_train: bool = False,
    is_subm: bool = False,
    timer: object = None,
    fp32_accum: bool | None = None,
    bias: torch.Tensor | None = None,
    act_alpha: float = 0.0,
    act_beta: float = 0.0,
    act_type: object = None,
    output_scale: float = 1.0,
    scale: torch.Tensor | None = None,
    output_add: torch.Tensor | None = None,
    output_add_scale: float = 0.0,
    output_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, None, int]:
    """Convolve over a neighbour table; differentiable.

    Args:
        features: [N, C_in].
        filters: [C_out, *kernel_size, C_in].
        pair_fwd: int32 [K, M].
        pair_mask_fwd_splits: accepted for spconv's signature: the table says it all.
        mask_argsort_fwd_splits: likewise.
        num_activate_out: M, or -1 for the table's.
        masks: likewise accepted, as the next three.
        is_train: see `masks`.
        is_subm: see `masks`.
        timer: see `masks`.
        fp32_accum: accepted; sums are always float32 at least.
        bias: [C_out] or None.
        act_alpha: slope of leaky_relu below zero.
        act_beta: accepted for spconv's signature.
        act_type: None, "relu", "leaky_relu", "sigmoid", or spconv's enum.
        output_scale: of int8, which is not here, as are the next three.
        scale: see `output_scale`.
        output_add: see `output_scale`.
        output_add_scale: see `output_scale`.
        output_dtype: of the result; None means that of the features.

    Returns:
        [M, C_out], then None and 0 where spconv returns its masks of the backward pass.
    """
    _check.features("features", features)
    if scale is not None or output_add is not None:
        raise NotImplementedError(
            "scale and output_add must be None, got tensors; int8 quantisation is not implemented"
        )
    if num_activate_out >= 0:
        pair_fwd = pair_fwd[:, :num_activate_out]
    pairs = map_from_neighbours(pair_fwd, len(features))
    out = activate(conv(features, filters, pairs, bias), activation_name(act_type), act_alpha)
    return out if output_dtype is None else out.to(output_dtype), None, 0


def implicit_gemm_backward(
    features: torch.Tensor,
    filters: torch.Tensor,
    out_bp: torch.Tensor,
    pair_fwd: torch.Tensor,
    *rest: Any,
    **unused: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of `implicit_gemm` to features and filters."""
    with torch.enable_grad():
        rows, kernel = features.detach().requires_grad_(), filters.detach().requires_grad_()
        out = implicit_gemm(rows, kernel, pair_fwd)[0]
    return cast(tuple[torch.Tensor, torch.Tensor], torch.autograd.grad(out, (rows, kernel), out_bp))


def indice_maxpool(
    features: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    *,
    floor_at_zero: bool = False,
    ties: str = "first",
) -> torch.Tensor:
    """Maximum over a pair table; differentiable. The options are those of `ops.pool.max_pool`."""
    rows = len(_check.features("features", features))
    pairs = map_from_pairs(indice_pairs, indice_pair_num, rows, int(num_activate_out))
    return max_pool(features, pairs, floor_at_zero=floor_at_zero, ties=ties)


def indice_maxpool_backward(
    features: torch.Tensor,
    out_features: torch.Tensor,
    out_bp: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    *,
    floor_at_zero: bool = False,
    ties: str = "first",
) -> torch.Tensor:
    """Gradient of `indice_maxpool` to features."""
    with torch.enable_grad():
        rows = features.detach().requires_grad_()
        out = indice_maxpool(
            rows,
            indice_pairs,
            indice_pair_num,
            len(out_bp),
            floor_at_zero=floor_at_zero,
            ties=ties,
        )
    return torch.autograd.grad(out, rows, out_bp)[0]


def indice_maxpool_implicit_gemm(
    features: torch.Tensor,
    indice_pairs: torch.Tensor,
    num_activate_out: int,
    *,
    floor_at_zero: bool = False,
    ties: str = "first",
) -> torch.Tensor:
    """Maximum over a neighbour table [K, M]; differentiable. See `indice_maxpool`."""
    _check.features("features", features)
    pairs = map_from_neighbours(indice_pairs[:, :num_activate_out], len(features))
    return max_pool(features, pairs, floor_at_zero=floor_at_zero, ties=ties)


def indice_maxpool_implicit_gemm_backward(
    features: torch.Tensor,
    out_features: torch.Tensor,
    out_bp: torch.Tensor,
    indice_pairs: torch.Tensor,
    *,
    floor_at_zero: bool = False,
    ties: str = "first",
) -> torch.Tensor:
    """Gradient to features; `indice_pairs` is the backward table [K, N], as in spconv."""
    _check.features("features", features)
    pairs = map_from_neighbours(indice_pairs, len(out_bp)).transposed()
    with torch.enable_grad():
        rows = features.detach().requires_grad_()
        out = max_pool(rows, pairs, floor_at_zero=floor_at_zero, ties=ties)
    return torch.autograd.grad(out, rows, out_bp)[0]


def indice_avgpool_implicit_gemm(
    features: torch.Tensor,
    indice_pairs: torch.Tensor,
    num_activate_out: int,
    calc_count: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over a neighbour table [K, M] and the number of inputs [M]; differentiable."""
    _check.features("features", features)
    table = indice_pairs[:, :num_activate_out]
    out = mean_pool(features, map_from_neighbours(table, len(features)))
    return out, (table >= 0).sum(0).int()


def indice_avgpool_implicit_gemm_backward(
    out_bp: torch.Tensor, indice_pairs: torch.Tensor, count_out: torch.Tensor
) -> torch.Tensor:
    """Gradient to features over the backward table [K, N]; divides by the count, as a mean's does.

    spconv 2.3.8 multiplies.
    """
    from ..ops.pool import sum_pool

    share = out_bp / count_out.clamp(min=1)[:, None].to(out_bp.dtype)
    return sum_pool(share, map_from_neighbours(indice_pairs, len(out_bp)))


def maximum_value_int_(ten: torch.Tensor, value: int) -> None:
    """Raise an integer tensor's entries to at least `value`, in place."""
    ten.clamp_(min=value)


def global_pool_rearrange(
    coords: torch.Tensor, batch_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of each sample: int32 [B, N], the first `counts[b]` of a line are valid."""
    batch = _check.coordinates("coords", coords)[:, 0].long()
    counts, order = count_ids(batch, batch_size), order_keys(batch)
    place = torch.arange(len(order), device=order.device)
    out = coords.new_full((batch_size, len(coords)), -1)
    owner = batch[order]
    out[owner, place - (running_sum(counts) - counts)[owner]] = order.int()
    return out, counts.int()
