"""Voxel backbones of OpenPCDet and of SECOND's middle encoder, for detection heads.

Sources: Yan, Mao, Li, "SECOND", Sensors 2018; Chen et al., "VoxelNeXt", CVPR 2023. Widths, keys and
strides are those of OpenPCDet and mmdetection3d, so that their checkpoints load by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, coalesce
from sparse3d.models._blocks import SparseBasicBlock, detection_norm, post_act_block

__all__ = ["SparseEncoder", "VoxelBackBone8x", "VoxelNeXt", "VoxelResBackBone8x"]


def _stem(in_channels: int, width: int) -> spnn.SparseSequential:
    return post_act_block(in_channels, width, 3, "subm1")


def _outlet(in_channels: int, out_channels: int, last_pad: Any = 0) -> spnn.SparseSequential:
    """Halve the height."""
    key = "spconv_down2"
    return post_act_block(in_channels, out_channels, (3, 1, 1), key, (2, 1, 1), last_pad, "spconv")


class _Backbone(nn.Module):
    def forward(self, x: SparseConvTensor) -> dict[str, SparseConvTensor]:
        """Tensors of every level: `x_conv1` to `x_conv4`, and `out` at an eighth of the grid.

        Args:
            x: voxels (batch, z, y, x) of a grid, `in_channels` features.
        """
        return self.encode(x)

    def encode(self, x: SparseConvTensor) -> dict[str, SparseConvTensor]:
        """Tensors of every level; `out` where there is a last layer.

        Args:
            x: voxels (batch, z, y, x) of a grid, `in_channels` features.
        """
        levels: dict[str, SparseConvTensor] = {}
        y = self.get_submodule("conv_input")(x)
        for level in range(1, 5):
            y = levels[f"x_conv{level}"] = self.get_submodule(f"conv{level}")(y)
        if "conv_out" in self._modules:
            levels["out"] = self.get_submodule("conv_out")(y)
        return levels


class VoxelBackBone8x(_Backbone):
    """OpenPCDet's backbone of plain conv blocks.

    Args:
        in_channels: features of a voxel.
        last_pad: padding of the last layer.
    """

    def __init__(self, in_channels: int = 4, last_pad: Any = 0) -> None:
        super().__init__()
        self.conv_input = _stem(in_channels, 16)
        self.conv1 = spnn.SparseSequential(post_act_block(16, 16, 3, "subm1"))
        before = 16
        for level, (width, padding) in enumerate(((32, 1), (64, 1), (64, (0, 1, 1))), 2):
            down = post_act_block(before, width, 3, f"spconv{level}", 2, padding, "spconv")
            rest = [post_act_block(width, width, 3, f"subm{level}") for _ in range(2)]
            self.add_module(f"conv{level}", spnn.SparseSequential(down, *rest))
            before = width
        self.conv_out = _outlet(64, 128, last_pad)


class VoxelResBackBone8x(_Backbone):
    """OpenPCDet's backbone of residual blocks.

    Args:
        in_channels: features of a voxel.
        last_pad: padding of the last layer.
        use_bias: biases in the residual blocks (`USE_BIAS`; upstream's default is True).
    """

    def __init__(self, in_channels: int = 4, last_pad: Any = 0, use_bias: bool = True) -> None:
        super().__init__()
        self.conv_input = _stem(in_channels, 16)
        self.conv1 = spnn.SparseSequential(
            *(SparseBasicBlock(16, "res1", use_bias) for _ in range(2))
        )
        before = 16
        for level, (width, padding) in enumerate(((32, 1), (64, 1), (128, (0, 1, 1))), 2):
            down = post_act_block(before, width, 3, f"spconv{level}", 2, padding, "spconv")
            rest = [SparseBasicBlock(width, f"res{level}", use_bias) for _ in range(2)]
            self.add_module(f"conv{level}", spnn.SparseSequential(down, *rest))
            before = width
        self.conv_out = _outlet(128, 128, last_pad)


class VoxelNeXt(nn.Module):
    """VoxelNeXt's backbone: levels 4 to 6 flattened onto one bird's-eye map of sparse pixels.

    Args:
        in_channels: features of a voxel.
        channels: widths of levels 1 to 5; level 6 has that of 5.
        out_channel: width of the map.
        kernel_sizes: of the strided convs of levels 2 to 5.
    """

    def __init__(
        self,
        in_channels: int = 4,
        channels: Sequence[int] = (16, 32, 64, 128, 128),
        out_channel: int = 128,
        kernel_sizes: Sequence[int] = (3, 3, 3, 3),
    ) -> None:
        super().__init__()
        self.conv_input = _stem(in_channels, channels[0])
        self.conv1 = spnn.SparseSequential(
            *(SparseBasicBlock(channels[0], "res1") for _ in range(2))
        )
        widths = [*channels, channels[-1]]
        sizes = [*kernel_sizes, kernel_sizes[-1]]
        for level in range(2, 7):
            before, width, size = widths[level - 2], widths[level - 1], sizes[level - 2]
            down = post_act_block(before, width, size, f"spconv{level}", 2, size // 2, "spconv")
            rest = [SparseBasicBlock(width, f"res{level}") for _ in range(2)]
            self.add_module(f"conv{level}", spnn.SparseSequential(down, *rest))
        self.conv_out = spnn.SparseSequential(
            spnn.SparseConv2d(
                channels[3], out_channel, 3, 1, 1, bias=False, indice_key="spconv_down2"
            ),
            detection_norm(out_channel),
            nn.ReLU(),
        )
        self.shared_conv = spnn.SparseSequential(
            spnn.SubMConv2d(out_channel, out_channel, 3),
            spnn.SparseBatchNorm(out_channel),
            nn.ReLU(True),
        )

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """The map: pixels (batch, y, x) at an eighth of the grid, `out_channel` features.

        Args:
            x: voxels (batch, z, y, x) of a grid, `in_channels` features.
        """
        y = self.conv1(self.conv_input(x))
        levels = []
        for level in range(2, 7):
            y = self.get_submodule(f"conv{level}")(y)
            levels.append(y)
        fourth, fifth, sixth = levels[2:]
        columns = []
        for level, scale in ((fourth, 1), (fifth, 2), (sixth, 4)):
            places = level.indices * level.indices.new_tensor([1, scale, scale, scale])
            columns.append(places[:, [0, 2, 3]])
        features = torch.cat([level.features for level in (fourth, fifth, sixth)])
        assert fourth.spatial_shape is not None
        flat = SparseConvTensor(
            features, torch.cat(columns), fourth.spatial_shape[1:], x.batch_size, check=False
        )
        out: SparseConvTensor = self.shared_conv(self.conv_out(coalesce(flat)))
        return out


class SparseEncoder(nn.Module):
    """SECOND's middle encoder (mmdetection3d `SparseEncoder`): voxels to a dense bird's-eye map.

    Args:
        in_channels: features of a voxel.
        base_channels: width of the stem.
        output_channels: width of the last layer.
        encoder_channels: widths of each stage's blocks.
        encoder_paddings: of each stage's blocks; only the strided ones read theirs.
        block_type: "conv_module", or "basicblock" for residual blocks with strided convs between.
    """

    def __init__(
        self,
        in_channels: int = 4,
        base_channels: int = 16,
        output_channels: int = 128,
        encoder_channels: Sequence[Sequence[int]] = ((16,), (32,) * 3, (64,) * 3, (64,) * 3),
        encoder_paddings: Sequence[Sequence[Any]] = ((1,), (1,) * 3, (1,) * 3, ((0, 1, 1), 1, 1)),
        block_type: str = "conv_module",
    ) -> None:
        super().__init__()
        if block_type not in ("conv_module", "basicblock"):
            raise ValueError(
                f"block_type must be 'conv_module' or 'basicblock', got {block_type!r}"
            )
        self.conv_input = _stem(in_channels, base_channels)
        self.encoder_layers = spnn.SparseSequential()
        width = base_channels
        for stage, (widths, paddings) in enumerate(
            zip(encoder_channels, encoder_paddings, strict=True), 1
        ):
            blocks: list[nn.Module] = []
            last = len(encoder_channels)
            for place, (out, padding) in enumerate(zip(widths, paddings, strict=True)):
                first = block_type == "conv_module" and stage > 1 and place == 0
                closes = block_type == "basicblock" and place == len(widths) - 1 and stage < last
                if first or closes:
                    key = f"spconv{stage}"
                    blocks.append(post_act_block(width, out, 3, key, 2, padding, "spconv"))
                elif block_type == "basicblock":
                    blocks.append(SparseBasicBlock(out, f"subm{stage}", bias=False))
                else:
                    blocks.append(post_act_block(width, out, 3, f"subm{stage}"))
                width = out
            name = f"encoder_layer{stage}"
            self.encoder_layers.add_module(name, spnn.SparseSequential(*blocks))
        self.conv_out = _outlet(width, output_channels)

    def forward(self, x: SparseConvTensor) -> torch.Tensor:
        """Dense map [B, output_channels * height, Y, X].

        Args:
            x: voxels (batch, z, y, x) of a grid, `in_channels` features.
        """
        out = self.conv_out(self.encoder_layers(self.conv_input(x)))
        return out.dense().flatten(1, 2)  # type: ignore[no-any-return]
