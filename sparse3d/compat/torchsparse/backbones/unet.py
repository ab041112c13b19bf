"""Residual U-Net."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ..nn.modules import BatchNorm, Conv3d, ReLU
from ..operators import cat
from .modules.blocks import SparseConvBlock, SparseConvTransposeBlock, SparseResBlock

__all__ = ["SparseResUNet", "SparseResUNet42"]


class SparseResUNet(nn.Module):
    """Four stages down, four up; gives every level's output.

    Args:
        stem_channels: of the stem.
        encoder_channels: of the stages down.
        decoder_channels: of the stages up.
        in_channels: of the input.
        width_multiplier: of all channels.
    """

    def __init__(
        self,
        stem_channels: int,
        encoder_channels: Sequence[int],
        decoder_channels: Sequence[int],
        *,
        in_channels: int = 4,
        width_multiplier: float = 1.0,
    ) -> None:
        super().__init__()
        self.stem_channels = stem_channels
        self.encoder_channels = encoder_channels
        self.decoder_channels = decoder_channels
        self.in_channels = in_channels
        self.width_multiplier = width_multiplier
        listed = [stem_channels, *encoder_channels, *decoder_channels]
        width = [int(width_multiplier * n) for n in listed]
        self.stem = nn.Sequential(
            Conv3d(in_channels, width[0], 3),
            BatchNorm(width[0]),
            ReLU(True),
            Conv3d(width[0], width[0], 3),
            BatchNorm(width[0]),
            ReLU(True),
        )
        self.encoders = nn.ModuleList(
            nn.Sequential(
                SparseConvBlock(width[k], width[k], 2, stride=2),
                SparseResBlock(width[k], width[k + 1], 3),
                SparseResBlock(width[k + 1], width[k + 1], 3),
            )
            for k in range(4)
        )
        self.decoders = nn.ModuleList(
            nn.ModuleDict(
                {
                    "upsample": SparseConvTransposeBlock(width[k + 4], width[k + 5], 2, stride=2),
                    "fuse": nn.Sequential(
                        SparseResBlock(width[k + 5] + width[3 - k], width[k + 5], 3),
                        SparseResBlock(width[k + 5], width[k + 5], 3),
                    ),
                }
            )
            for k in range(4)
        )

    def forward(self, x: Any) -> list[Any]:
        """Outputs from the stem down to the deepest level and up again."""
        down = [self.stem(x)]
        for encoder in self.encoders:
            down.append(encoder(down[-1]))
        outputs = list(down)
        for decoder, skip in zip(self.decoders, reversed(down[:-1]), strict=True):
            raised = decoder["upsample"](outputs[-1])  # type: ignore[index]
            outputs.append(decoder["fuse"](cat([raised, skip])))  # type: ignore[index]
        return outputs


class SparseResUNet42(SparseResUNet):
    """The peer's segmentation backbone."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(32, [32, 64, 128, 256], [256, 128, 96, 96], **kwargs)
