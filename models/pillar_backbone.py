"""PillarNet's backbones over bird's-eye pillars, for detection heads.

Source: Shi, Li, Ma, "PillarNet: Real-Time and High-Performance Pillar-Based 3D Object Detection",
ECCV 2022. Widths, keys and strides are OpenPCDet's, so that its checkpoints load by name.
"""

from __future__ import annotations

import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor
from sparse3d.models._blocks import SparseBasicBlock, post_act_block

__all__ = ["PillarBackBone8x", "PillarRes18BackBone8x"]

_WIDTHS = (32, 64, 128, 256)


def _norm(width: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.01)


def _dense_block(width: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, _norm(width), nn.ReLU())


class _DenseResidual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.bn1 = _norm(width)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.bn2 = _norm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(out + x)  # type: ignore[no-any-return]


class PillarBackBone8x(nn.Module):
    """Plain conv blocks over sparse pillars, then dense ones at a sixteenth of the grid."""

    def __init__(self) -> None:
        super().__init__()
        before = _WIDTHS[0]
        for level, width in enumerate(_WIDTHS, 1):
            blocks: list[nn.Module] = [self._block(width, level) for _ in range(2)]
            if level > 1:
                key = f"spconv{level}"
                blocks.insert(0, post_act_block(before, width, 3, key, 2, 1, "spconv", axes=2))
            self.add_module(f"conv{level}", spnn.SparseSequential(*blocks))
            before = width
        rest = [self._dense(before) for _ in range(2)]
        self.conv5 = nn.Sequential(_dense_block(before, 2), *rest)

    def _block(self, width: int, level: int) -> nn.Module:
        return post_act_block(width, width, 3, f"subm{level}", axes=2)

    def _dense(self, width: int) -> nn.Module:
        return _dense_block(width)

    def forward(self, x: SparseConvTensor) -> dict[str, SparseConvTensor | torch.Tensor]:
        """Tensors of every level: sparse `x_conv1` to `x_conv3`, dense `x_conv4` and `x_conv5`
        [B, 256, Y, X].

        Args:
            x: pillars (batch, y, x) of a grid, 32 features.
        """
        levels: dict[str, SparseConvTensor | torch.Tensor] = {}
        y = x
        for level in range(1, 4):
            y = levels[f"x_conv{level}"] = self.get_submodule(f"conv{level}")(y)
        levels["x_conv4"] = dense = self.get_submodule("conv4")(y).dense()
        levels["x_conv5"] = self.conv5(dense)
        return levels


class PillarRes18BackBone8x(PillarBackBone8x):
    """The same with residual blocks."""

    def _block(self, width: int, level: int) -> nn.Module:
        return SparseBasicBlock(width, f"res{level}", axes=2)

    def _dense(self, width: int) -> nn.Module:
        return _DenseResidual(width)
