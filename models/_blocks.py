"""Blocks that several of the networks share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor

__all__ = ["Norm", "SparseBasicBlock", "detection_norm", "post_act_block"]

Norm = Callable[[int], nn.Module]

detection_norm: Norm = partial(spnn.SparseBatchNorm, eps=1e-3, momentum=0.01)

_SUBMANIFOLD = {2: spnn.SubMConv2d, 3: spnn.SubMConv3d}
_STRIDED = {2: spnn.SparseConv2d, 3: spnn.SparseConv3d}
_INVERSE = {2: spnn.SparseInverseConv2d, 3: spnn.SparseInverseConv3d}


def post_act_block(
    in_channels: int,
    out_channels: int,
    kernel_size: Any,
    indice_key: str,
    stride: Any = 1,
    padding: Any = 0,
    conv_type: str = "subm",
    norm: Norm = detection_norm,
    axes: int = 3,
) -> spnn.SparseSequential:
    """Conv over `axes` axes, norm, ReLU; `conv_type` is "subm", "spconv" or "inverseconv"."""
    conv: nn.Module
    if conv_type == "subm":
        conv = _SUBMANIFOLD[axes](
            in_channels, out_channels, kernel_size, bias=False, indice_key=indice_key
        )
    elif conv_type == "spconv":
        conv = _STRIDED[axes](
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            bias=False,
            indice_key=indice_key,
        )
    else:
        conv = _INVERSE[axes](in_channels, out_channels, kernel_size, indice_key, bias=False)
    return spnn.SparseSequential(conv, norm(out_channels), nn.ReLU())


class SparseBasicBlock(spnn.SparseModule):
    """Two 3-tap submanifold convs and a shortcut.

    Args:
        planes: channels.
        indice_key: shared by both convs.
        bias: of the convs.
        norm: makes a norm of a width.
        axes: 2 or 3.
    """

    def __init__(
        self,
        planes: int,
        indice_key: str,
        bias: bool = True,
        norm: Norm = detection_norm,
        axes: int = 3,
    ) -> None:
        super().__init__()
        conv = _SUBMANIFOLD[axes]
        self.conv1 = conv(planes, planes, 3, bias=bias, indice_key=indice_key)
        self.bn1 = norm(planes)
        self.relu = spnn.SparseReLU()
        self.conv2 = conv(planes, planes, 3, bias=bias, indice_key=indice_key)
        self.bn2 = norm(planes)

    def forward(self, x: SparseConvTensor) -> Any:
        """Add the branch to the input."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + x)


def joined(left: SparseConvTensor, right: SparseConvTensor) -> SparseConvTensor:
    """Channels of two tensors on the same rows."""
    return left.replace_feature(torch.cat([left.features, right.features], 1))
