"""UNetV2, the backbone of Part-A2 and PointRCNN-like detectors that labels every voxel.

Source: Shi et al., "From Points to Parts: 3D Object Detection from Point Cloud with Part-aware and
Part-aggregation Network", TPAMI 2020. Names are OpenPCDet's, so that its checkpoints load.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from sparse3d import SparseConvTensor
from sparse3d.models._blocks import SparseBasicBlock, joined, post_act_block
from sparse3d.models.voxel_backbone import VoxelBackBone8x

__all__ = ["UNetV2"]

_WIDTHS = {4: (64, 64), 3: (64, 32), 2: (32, 16), 1: (16, 16)}


class UNetV2(VoxelBackBone8x):
    """`VoxelBackBone8x` with a way back up to the voxels.

    Args:
        in_channels: features of a voxel.
        last_pad: padding of the encoder's last layer.
        encoded: have the encoder's last layer (`RETURN_ENCODED_TENSOR`).
    """

    def __init__(self, in_channels: int = 4, last_pad: Any = 0, encoded: bool = True) -> None:
        super().__init__(in_channels, last_pad)
        if not encoded:
            del self.conv_out
        for level, (width, after) in _WIDTHS.items():
            key = f"subm{level}"
            self.add_module(f"conv_up_t{level}", SparseBasicBlock(width, key, bias=False))
            self.add_module(f"conv_up_m{level}", post_act_block(2 * width, width, 3, key))
            if level > 1:
                up = post_act_block(width, after, 3, f"spconv{level}", conv_type="inverseconv")
                self.add_module(f"inv_conv{level}", up)
        self.conv5 = nn.Sequential(post_act_block(16, 16, 3, "subm1"))

    def forward(self, x: SparseConvTensor) -> dict[str, SparseConvTensor]:
        """Tensors of every level, as of `VoxelBackBone8x`, and `points`: 16 features of each voxel.

        Args:
            x: voxels (batch, z, y, x) of a grid, `in_channels` features.
        """
        levels = self.encode(x)
        y = levels["x_conv4"]
        for level in range(4, 0, -1):
            side = self.get_submodule(f"conv_up_t{level}")(levels[f"x_conv{level}"])
            both = joined(y, side)
            merged = self.get_submodule(f"conv_up_m{level}")(both)
            rows, width = merged.features.shape
            folded = both.features.reshape(rows, width, 2).sum(2)
            y = merged.replace_feature(merged.features + folded)
            y = self.get_submodule(f"inv_conv{level}" if level > 1 else "conv5")(y)
        levels["points"] = y
        return levels
