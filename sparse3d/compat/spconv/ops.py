"""`spconv.ops` of 1.x: pair tables that count every pair, and kernels in either version's order.

A kernel is `[*kernel_size, C_in, C_out]` as 1.x stores it, or `[C_out, *kernel_size, C_in]` as the
layers here do; shapes tell, and what fits both is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ... import _check
from ...nn import ops as _ops
from ...nn.ops import get_conv_output_size, get_deconv_output_size
from .pytorch.core import ConvAlgo, expand_nd
from .pytorch.ops import indice_maxpool, indice_maxpool_backward

__all__ = [
    "fused_indice_conv",
    "get_conv_output_size",
    "get_deconv_output_size",
    "get_indice_pairs",
    "indice_conv",
    "indice_conv_backward",
    "indice_maxpool",
    "indice_maxpool_backward",
]

Sizes = int | Sequence[int]


def get_indice_pairs(
    indices: torch.Tensor,
    batch_size: int,
    spatial_shape: Sequence[int],
    ksize: Sizes = 3,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    out_padding: Sizes = 0,
    subm: bool = False,
    transpose: bool = False,
    grid: object = None,
    use_hash: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output sites, pairs int32 [2, K, N] padded with -1, and pairs of each tap int32 [K].

    Args:
        indices: int32 [N, 1 + D].
        batch_size: number of samples.
        spatial_shape: grid of the inputs.
        ksize: kernel size, one integer or one an axis; likewise the next four.
        stride: ignored by a submanifold layer.
        padding: ignored by a submanifold layer.
        dilation: of the kernel.
        out_padding: extra grid of a transposed layer.
        subm: outputs are the inputs.
        transpose: from coarse sites to fine ones.
        grid: accepted for the peer's signature, as is `use_hash`.
        use_hash: see `grid`.
    """
    axes = indices.shape[1] - 1
    size, step = expand_nd(axes, ksize), expand_nd(axes, stride)
    sites, pairs, _ = _ops.get_indice_pairs(
        indices,
        batch_size,
        spatial_shape,
        ConvAlgo.Native,
        size,
        step,
        expand_nd(axes, padding),
        expand_nd(axes, dilation),
        expand_nd(axes, out_padding),
        subm,
        transpose,
    )
    return sites, pairs, (pairs[0] >= 0).sum(1).int()


def _canonical(filters: torch.Tensor, channels: int, taps: int) -> tuple[torch.Tensor, bool]:
    """The kernel as `[C_out, *kernel_size, C_in]`, and whether it was 1.x's."""
    shape = list(filters.shape)
    old = shape[-2] == channels and math.prod(shape[:-2]) == taps
    new = shape[-1] == channels and math.prod(shape[1:-1]) == taps
    if old == new:
        wanted = f"[*kernel_size, {channels}, C_out] or [C_out, *kernel_size, {channels}]"
        got = f"{shape}, which fits {'both' if old else 'neither'}, for {taps} taps"
        _check.fail("filters", wanted, got, "use a layer, or sparse3d.ops.conv")
    return (filters.movedim(-1, 0), True) if old else (filters, False)


def indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    inverse: bool = False,
    subm: bool = False,
) -> torch.Tensor:
    """Convolve over a pair table; differentiable."""
    kernel, _ = _canonical(filters, features.shape[1], len(indice_pair_num))
    return _ops.indice_conv(
        features, kernel, indice_pairs, indice_pair_num, num_activate_out, inverse
    )


def fused_indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    bias: torch.Tensor | None,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    inverse: bool,
    subm: bool,
) -> torch.Tensor:
    """`indice_conv` with a bias."""
    kernel, _ = _canonical(filters, features.shape[1], len(indice_pair_num))
    return _ops.fused_indice_conv(
        features, kernel, bias, indice_pairs, indice_pair_num, num_activate_out, inverse
    )


def indice_conv_backward(
    features: torch.Tensor,
    filters: torch.Tensor,
    out_bp: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    inverse: bool = False,
    subm: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients to features and to the kernel, in the order that it came in."""
    kernel, old = _canonical(filters, features.shape[1], len(indice_pair_num))
    to_rows, to_kernel = _ops.indice_conv_backward(
        features, kernel, out_bp, indice_pairs, indice_pair_num, inverse
    )
    return to_rows, to_kernel.movedim(0, -1) if old else to_kernel
