"""`spconv.ops` of 1.x: pair tables that count every pair; kernels `[*kernel_size, C_in, C_out]`, as
its layers store them."""

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
    "ConvAlgo",
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
    return _ops.get_indice_pairs(
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
        count_all=True,
    )


def _canonical(filters: torch.Tensor, channels: int, taps: int) -> torch.Tensor:
    """The kernel as `[C_out, *kernel_size, C_in]`."""
    shape = list(filters.shape)
    if shape[-2] != channels or math.prod(shape[:-2]) != taps:
        _check.fail("filters", f"[*kernel_size, {channels}, C_out] of {taps} taps", shape)
    return filters.movedim(-1, 0)


def indice_conv(
    features: torch.Tensor,
    filters: torch.Tensor,
    indice_pairs: torch.Tensor,
    indice_pair_num: torch.Tensor,
    num_activate_out: int,
    inverse: bool = False,
    subm: bool = False,
    algo: object = None,
) -> torch.Tensor:
    """Convolve over a pair table; differentiable."""
    kernel = _canonical(filters, features.shape[1], len(indice_pair_num))
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
    kernel = _canonical(filters, features.shape[1], len(indice_pair_num))
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
    algo: object = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients to features and to the kernel."""
    kernel = _canonical(filters, features.shape[1], len(indice_pair_num))
    to_rows, to_kernel = _ops.indice_conv_backward(
        features, kernel, out_bp, indice_pairs, indice_pair_num, inverse
    )
    return to_rows, to_kernel.movedim(0, -1)
