"""`spconv.pytorch.quantization.fuse_mapping`: what replaces a run of layers."""

from __future__ import annotations

from typing import Any

from .intrinsic import (
    SpconvAddReLUNd,
    SpconvBnAddReLUNd,
    SpconvBnNd,
    SpconvBnReLUNd,
    SpconvReLUNd,
)
from .utils import fuse_spconv_bn_eval

__all__ = ["fuse_conv_bn", "fuse_conv_bn_add_relu", "fuse_conv_bn_relu"]


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
