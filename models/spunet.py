"""SpUNet, Pointcept's sparse residual U-Net (spconv variant `SpUNet-v1m1`).

Source: Pointcept's `spconv_unet_v1m1_base`; names are kept, so that its checkpoints load.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor
from sparse3d.models._blocks import detection_norm, joined
from sparse3d.models.minkunet import interpolated

__all__ = ["SpUNet"]


class _Block(spnn.SparseModule):
    """Two 3-tap convs and a shortcut, projected where the width changes."""

    def __init__(self, in_channels: int, width: int, indice_key: str) -> None:
        super().__init__()
        self.proj = spnn.SparseSequential(nn.Identity())
        if in_channels != width:
            self.proj = spnn.SparseSequential(
                spnn.SubMConv3d(in_channels, width, 1, bias=False), detection_norm(width)
            )
        self.conv1 = spnn.SubMConv3d(in_channels, width, 3, bias=False, indice_key=indice_key)
        self.bn1 = detection_norm(width)
        self.relu = spnn.SparseReLU()
        self.conv2 = spnn.SubMConv3d(width, width, 3, bias=False, indice_key=indice_key)
        self.bn2 = detection_norm(width)

    def forward(self, x: SparseConvTensor) -> Any:
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.proj(x))


def _stage(in_channels: int, width: int, number: int, key: str) -> spnn.SparseSequential:
    widths = [in_channels] + [width] * (number - 1)
    blocks = {f"block{i}": _Block(before, width, key) for i, before in enumerate(widths)}
    return spnn.SparseSequential(OrderedDict(blocks))


class SpUNet(nn.Module):
    """Sparse residual U-Net.

    Args:
        in_channels: features of a voxel.
        num_classes: logits; 0 gives the last features.
        base_channels: width of the stem.
        channels: widths of the stages down, then up.
        layers: residual blocks of each stage.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        base_channels: int = 32,
        channels: Sequence[int] = (32, 64, 128, 256, 256, 128, 96, 96),
        layers: Sequence[int] = (2, 3, 4, 6, 2, 2, 2, 2),
    ) -> None:
        super().__init__()
        if len(channels) % 2 or len(channels) != len(layers):
            got = f"{len(channels)} and {len(layers)}"
            raise ValueError(f"channels and layers must have the same even length, got {got}")
        self.num_stages = len(layers) // 2
        self.conv_input = spnn.SparseSequential(
            spnn.SubMConv3d(in_channels, base_channels, 5, bias=False, indice_key="stem"),
            detection_norm(base_channels),
            nn.ReLU(),
        )
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.enc, self.dec = nn.ModuleList(), nn.ModuleList()
        encoder, decoder = base_channels, channels[-1]
        for stage in range(self.num_stages):
            width, opposite = channels[stage], channels[len(channels) - stage - 2]
            key = f"spconv{stage + 1}"
            self.down.append(
                spnn.SparseSequential(
                    spnn.SparseConv3d(encoder, width, 2, 2, bias=False, indice_key=key),
                    detection_norm(width),
                    nn.ReLU(),
                )
            )
            self.enc.append(_stage(width, width, layers[stage], f"subm{stage + 1}"))
            self.up.append(
                spnn.SparseSequential(
                    spnn.SparseInverseConv3d(opposite, decoder, 2, key, bias=False),
                    detection_norm(decoder),
                    nn.ReLU(),
                )
            )
            number = layers[len(channels) - stage - 1]
            self.dec.append(_stage(decoder + encoder, decoder, number, f"subm{stage}"))
            encoder, decoder = width, opposite
        self.final: nn.Module = spnn.SparseIdentity()
        if num_classes > 0:
            self.final = spnn.SubMConv3d(channels[-1], num_classes, 1)
        self.apply(_start)

    def forward(self, x: SparseConvTensor, points: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of every voxel, or of points.

        Args:
            x: voxels of a grid, `in_channels` features.
            points: [Q, 4] batch id and position in voxel units; each has the logits of its
                surroundings by trilinear interpolation. None means the voxels themselves.

        Returns:
            [N, num_classes], or [Q, num_classes].
        """
        y = self.conv_input(x)
        skips = [y]
        for down, encode in zip(self.down, self.enc, strict=True):
            y = encode(down(y))
            skips.append(y)
        y = skips.pop()
        for up, decode in zip(reversed(self.up), reversed(self.dec), strict=True):
            y = decode(joined(up(y), skips.pop()))
        y = self.final(y)
        return y.features if points is None else interpolated(y, points, 1)


def _start(layer: nn.Module) -> None:
    """Published start of the submanifold kernels; the others keep theirs."""
    if isinstance(layer, spnn.SubMConv3d):
        nn.init.trunc_normal_(layer.weight, std=0.02)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
