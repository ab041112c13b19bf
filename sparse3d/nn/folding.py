"""Norms and activations folded into convolutions, by spconv's names."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .. import _check
from ..ops.conv import scaled
from ._fusion import fuse, norm_as_scale
from .fused import (
    SpconvAddReLUNd,
    SpconvBnAddReLUNd,
    SpconvBnNd,
    SpconvBnReLUNd,
    SpconvReLUNd,
)
from .modules import SparseIdentity, SparseSequential

__all__ = [
    "fuse_conv_bn",
    "fuse_conv_bn_add_relu",
    "fuse_conv_bn_relu",
    "fuse_spconv_act_eval",
    "fuse_spconv_bn_eval",
    "fuse_spconv_bn_weights",
]


def fuse_spconv_bn_weights(
    conv_w_OKI: torch.Tensor,
    conv_b: torch.Tensor | None,
    bn_rm: torch.Tensor,
    bn_rv: torch.Tensor,
    bn_eps: float,
    bn_w: torch.Tensor | None,
    bn_b: torch.Tensor | None,
) -> tuple[nn.Parameter, nn.Parameter]:
    """Weight and bias of a convolution with a norm in it.

    Args:
        conv_w_OKI: [out, *kernel_size, in]; not a 1 x 1 kernel's parameter, which is stored
            [in, out]: `fuse_spconv_bn_eval` knows.
        conv_b: [out] or None.
        bn_rm: running means [out].
        bn_rv: running variances [out].
        bn_eps: added to the variances.
        bn_w: [out] or None for ones.
        bn_b: [out] or None for zeros.
    """
    scale, bias = norm_as_scale(bn_rm, bn_rv, bn_eps, bn_w, bn_b, conv_b)
    return nn.Parameter(scaled(conv_w_OKI, scale).detach()), nn.Parameter(bias.detach())


def fuse_spconv_bn_eval(conv: Any, bn: Any) -> Any:
    """A copy of `conv` that computes `bn(conv(x))`.

    Args:
        conv: convolution in eval mode.
        bn: batch norm in eval mode.

    Raises:
        ValueError: if one is in training, or `conv` has hooks or an activation of its own.
    """
    if conv.training or bn.training:
        _check.fail("conv and bn", "in eval mode", "training mode", "call eval() on both")
    return _folded("bn", conv, bn)


def fuse_spconv_act_eval(conv: Any, act: Any) -> Any:
    """A copy of `conv` that computes `act(conv(x))`.

    Args:
        conv: convolution in eval mode.
        act: ReLU or LeakyReLU.

    Raises:
        NotImplementedError: if `act` is another.
        ValueError: if `conv` is in training, or has hooks or an activation of its own.
    """
    if not isinstance(act, nn.ReLU | nn.LeakyReLU):
        raise NotImplementedError(
            f"act must be one of ReLU and LeakyReLU, got {type(act).__name__}"
        )
    if conv.training:
        _check.fail("conv", "in eval mode", "training mode", "call eval() on it")
    return _folded("act", conv, act)


def _folded(name: str, conv: Any, module: nn.Module) -> Any:
    made = fuse(SparseSequential(conv, module).eval())
    if not isinstance(made[1], SparseIdentity):
        _check.fail(name, "foldable into conv", "hooks, or an activation in conv already")
    return made[0]


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any, is_add_fuse: bool = False) -> Any:
    """A container of both to train, or one convolution for inference."""
    return SpconvBnNd(conv, bn) if is_qat else fuse_spconv_bn_eval(conv, bn)


def fuse_conv_bn_relu(
    is_qat: bool, conv: Any, bn: Any, relu: Any, is_add_fuse: bool = False
) -> Any:
    """A container of the three to train, or of convolution and ReLU for inference; with
    `is_add_fuse` one that adds a second tensor before the ReLU."""
    if is_qat:
        return (SpconvBnAddReLUNd if is_add_fuse else SpconvBnReLUNd)(conv, bn, relu)
    kind = SpconvAddReLUNd if is_add_fuse else SpconvReLUNd
    return kind(fuse_spconv_bn_eval(conv, bn), relu)


def fuse_conv_bn_add_relu(is_qat: bool, relu: Any, add_pattern: Any) -> Any:
    """The same of a pattern (add, (norm, convolution), other)."""
    bn, conv = add_pattern[1]
    return fuse_conv_bn_relu(is_qat, conv, bn, relu, True)
