"""`spconv.pytorch.quantization.utils`: norms and activations folded into convolutions."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..... import _check
from .....nn import fuse
from .....nn._fusion import norm_as_scale
from .....ops.conv import scaled
from ..modules import SparseIdentity, SparseSequential

__all__ = ["fuse_spconv_act_eval", "fuse_spconv_bn_eval", "fuse_spconv_bn_weights"]


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
