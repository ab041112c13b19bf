"""MinkUNet, the sparse residual U-Net of SemanticKITTI, in its published families.

Widths and heads follow spvnas (`MinkUNet` at cr 0.5, 0.64, 1.0), mmdetection3d (W16, W20, W32; 18
and 34 layers; v1 and v2 heads) and OpenPCSeg; `configs/minkunet_*.yaml` name them.

Source: Choy, Gwak, Savarese, "4D Spatio-Temporal ConvNets: Minkowski Convolutional Neural
Networks", CVPR 2019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, devoxelize
from sparse3d.nn import Linear

__all__ = ["MinkUNet", "scaled_widths"]

SPVNAS_WIDTHS = (32, 32, 64, 128, 256, 256, 128, 96, 96)
HEADS = ("v1", "v2")


def scaled_widths(cr: float) -> list[int]:
    """spvnas's nine channel widths at channel ratio `cr`, truncated to integers."""
    return [int(cr * width) for width in SPVNAS_WIDTHS]


def conv_block(in_channels: int, out_channels: int, key: str) -> list[nn.Module]:
    """A 3 x 3 x 3 submanifold conv, batch norm and ReLU."""
    return [
        spnn.SubMConv3d(in_channels, out_channels, 3, bias=False, indice_key=key),
        spnn.SparseBatchNorm(out_channels),
        spnn.SparseReLU(inplace=True),
    ]


class Down(spnn.SparseModule):
    """Halve the grid: every 2 x 2 x 2 cell with a site becomes one."""

    def __init__(self, in_channels: int, out_channels: int, key: str) -> None:
        super().__init__()
        self.net = spnn.SparseSequential(
            spnn.SparseConv3d(
                in_channels, out_channels, 2, 2, bias=False, indice_key=key, rule="floor"
            ),
            spnn.SparseBatchNorm(out_channels),
            spnn.SparseReLU(inplace=True),
        )

    def forward(self, x: SparseConvTensor) -> Any:
        return self.net(x)


class Up(spnn.SparseModule):
    """Undo a `Down`: its fine sites, in their order."""

    def __init__(self, in_channels: int, out_channels: int, key: str) -> None:
        super().__init__()
        self.net = spnn.SparseSequential(
            spnn.SparseInverseConv3d(in_channels, out_channels, 2, key, bias=False),
            spnn.SparseBatchNorm(out_channels),
            spnn.SparseReLU(inplace=True),
        )

    def forward(self, x: SparseConvTensor) -> Any:
        return self.net(x)


class Residual(spnn.SparseModule):
    """Two 3 x 3 x 3 convs around a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, key: str) -> None:
        super().__init__()
        self.net = spnn.SparseSequential(
            *conv_block(in_channels, out_channels, key),
            spnn.SubMConv3d(out_channels, out_channels, 3, bias=False, indice_key=key),
            spnn.SparseBatchNorm(out_channels),
            spnn.SparseReLU(inplace=True),
        )
        self.downsample: nn.Module = spnn.SparseIdentity()
        if in_channels != out_channels:
            self.downsample = spnn.SparseSequential(
                spnn.SubMConv3d(in_channels, out_channels, 1, bias=False),
                spnn.SparseBatchNorm(out_channels),
            )

    def forward(self, x: SparseConvTensor) -> Any:
        return self.net(x, add_input=self.downsample(x))


def residuals(in_channels: int, out_channels: int, count: int, key: str) -> list[nn.Module]:
    """A stage's residual blocks; the first changes the width."""
    widths = [in_channels] + [out_channels] * (count - 1)
    return [Residual(width, out_channels, key) for width in widths]


class MinkUNet(nn.Module):
    """Sparse residual U-Net of four levels.

    Args:
        in_channels: features of a voxel (x, y, z, remission by custom).
        num_classes: logits.
        widths: nine channel counts: stem, four encoder stages, four decoder stages.
        encoder_blocks: residual blocks of each encoder stage; (2, 3, 4, 6) is the 34-layer net.
        decoder_blocks: residual blocks of each decoder stage.
        head: "v1" reads the finest level; "v2" reads bottleneck, second and last decoder stage,
            interpolated to the points and joined.

    Raises:
        ValueError: if the numbers of widths or blocks, or the head, are others.
    """

    def __init__(
        self,
        in_channels: int = 4,
        num_classes: int = 19,
        widths: Sequence[int] = SPVNAS_WIDTHS,
        encoder_blocks: Sequence[int] = (2, 2, 2, 2),
        decoder_blocks: Sequence[int] = (2, 2, 2, 2),
        head: str = "v1",
    ) -> None:
        super().__init__()
        if len(widths) != 9 or len(encoder_blocks) != 4 or len(decoder_blocks) != 4:
            raise ValueError(
                "widths and blocks must have 9, 4 and 4 entries, "
                f"got {len(widths)}, {len(encoder_blocks)} and {len(decoder_blocks)}"
            )
        if head not in HEADS:
            raise ValueError(f"head must be one of {HEADS}, got {head!r}")
        self.head = head
        self.stem = spnn.SparseSequential(
            *conv_block(in_channels, widths[0], "level0"),
            *conv_block(widths[0], widths[0], "level0"),
        )
        for stage in range(1, 5):
            before, width, key = widths[stage - 1], widths[stage], f"level{stage}"
            blocks = residuals(before, width, encoder_blocks[stage - 1], key)
            down = Down(before, before, f"down{stage}")
            self.add_module(f"stage{stage}", spnn.SparseSequential(down, *blocks))
        for stage in range(1, 5):
            before, width, skip = widths[stage + 3], widths[stage + 4], widths[4 - stage]
            key = f"level{4 - stage}"
            blocks = residuals(width + skip, width, decoder_blocks[stage - 1], key)
            up = Up(before, width, f"down{5 - stage}")
            pair = nn.ModuleList([up, spnn.SparseSequential(*blocks)])
            self.add_module(f"up{stage}", pair)
        read = widths[8] if head == "v1" else widths[4] + widths[6] + widths[8]
        self.classifier = nn.Sequential(Linear(read, num_classes))

    def forward(self, x: SparseConvTensor, points: torch.Tensor | None = None) -> torch.Tensor:
        """Logits of every voxel, or of points.

        Args:
            x: voxels of a batch, N rows, `in_channels` features.
            points: [Q, 4] batch id and position in voxel units; a v1 head gives each the logits
                of its surroundings by trilinear interpolation. None means the voxels themselves.

        Returns:
            [N, num_classes], or [Q, num_classes].
        """
        levels = [self.stem(x)]
        for stage in range(1, 5):
            levels.append(self.get_submodule(f"stage{stage}")(levels[-1]))
        y, decoded = levels[4], []
        for stage in range(1, 5):
            up, blocks = self.get_submodule(f"up{stage}").children()
            y = up(y)
            skip = levels[4 - stage]
            y = blocks(y.replace_feature(torch.cat([y.features, skip.features], 1)))
            decoded.append(y)
        if self.head == "v1":
            logits: torch.Tensor = self.classifier(y.features)
            return logits if points is None else interpolated(y.replace_feature(logits), points, 1)
        where = voxel_positions(x) if points is None else points
        scales = ((levels[4], 16), (decoded[1], 4), (decoded[3], 1))
        joined = torch.cat([interpolated(level, where, scale) for level, scale in scales], 1)
        return self.classifier(joined)  # type: ignore[no-any-return]


def voxel_positions(x: SparseConvTensor) -> torch.Tensor:
    """Batch id and position of every voxel, float [N, 4]."""
    return x.indices.to(torch.float32)


def interpolated(x: SparseConvTensor, points: torch.Tensor, scale: int) -> torch.Tensor:
    """Features of a level at points in finest voxel units: trilinear over the voxels present."""
    here = torch.cat([points[:, :1], points[:, 1:] / scale], 1)
    return devoxelize(x.features, coords=x.indices, points=here, renormalize=True)
