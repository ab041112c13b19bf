"""MinkUNet14 to 101 and ResNet14 to 101, the networks of MinkowskiEngine's examples.

Source: Choy, Gwak, Savarese, "4D Spatio-Temporal ConvNets: Minkowski Convolutional Neural
Networks", CVPR 2019. Names are kept (`conv0p1s1`, `block1`, ...), so that checkpoints load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, quantize, voxelize
from sparse3d.models._blocks import joined
from sparse3d.ops.linear import sinusoidal
from sparse3d.ops.segment import spread_segments, standardize_segments

__all__ = ["RESNETS", "UNETS", "MinkowskiFieldNet", "MinkowskiResNet", "MinkowskiUNet"]

_PLAIN = (32, 64, 128, 256, 256, 128, 96, 96)
_WIDTHS_18: dict[str, tuple[int, ...]] = {
    "": _PLAIN,
    "A": (32, 64, 128, 256, 128, 128, 96, 96),
    "B": (32, 64, 128, 256, 128, 128, 128, 128),
    "D": (32, 64, 128, 256, 384, 384, 384, 384),
}
_WIDTHS: dict[str, dict[str, tuple[int, ...]]] = {
    "14": {**_WIDTHS_18, "C": (32, 64, 128, 256, 192, 192, 128, 128)},
    "18": _WIDTHS_18,
    "34": {
        "": _PLAIN,
        "A": (32, 64, 128, 256, 256, 128, 64, 64),
        "B": (32, 64, 128, 256, 256, 128, 64, 32),
        "C": _PLAIN,
    },
    "50": {"": _PLAIN},
    "101": {"": _PLAIN},
}
_DEPTHS: dict[str, tuple[str, tuple[int, ...]]] = {
    "14": ("basic", (1,) * 8),
    "18": ("basic", (2,) * 8),
    "34": ("basic", (2, 3, 4, 6, 2, 2, 2, 2)),
    "50": ("bottleneck", (2, 3, 4, 6, 2, 2, 2, 2)),
    "101": ("bottleneck", (2, 3, 4, 23, 2, 2, 2, 2)),
}
UNETS: dict[str, dict[str, Any]] = {
    f"MinkUNet{depth}{letter}": {"planes": planes, "block": block, "layers": layers}
    for depth, (block, layers) in _DEPTHS.items()
    for letter, planes in _WIDTHS[depth].items()
}
"""Names of the examples -> arguments of `MinkowskiUNet`."""
RESNETS: dict[str, dict[str, Any]] = {
    "ResNet14": {"block": "basic", "layers": (1, 1, 1, 1)},
    "ResNet18": {"block": "basic", "layers": (2, 2, 2, 2)},
    "ResNet34": {"block": "basic", "layers": (3, 4, 6, 3)},
    "ResNet50": {"block": "bottleneck", "layers": (3, 4, 6, 3)},
    "ResNet101": {"block": "bottleneck", "layers": (3, 4, 23, 3)},
}
"""Names of the examples -> arguments of `MinkowskiResNet`."""


def _conv(
    in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, key: str = ""
) -> spnn.SparseConvolution:
    """A conv on MinkowskiEngine's sites: centred where odd, strides make the floors."""
    if stride == 1:
        name = f"{key}k{kernel_size}" if key and kernel_size > 1 else None
        return spnn.SubMConv3d(in_channels, out_channels, kernel_size, bias=False, indice_key=name)
    padding = kernel_size // 2 if kernel_size % 2 else 0
    return spnn.SparseConv3d(
        in_channels,
        out_channels,
        kernel_size,
        stride,
        padding,
        bias=False,
        indice_key=key or None,
        rule="floor",
    )


class _Basic(spnn.SparseModule):
    expansion: ClassVar[int] = 1

    def __init__(self, inplanes: int, planes: int, stride: int, key: str) -> None:
        super().__init__()
        self.conv1 = _conv(inplanes, planes, 3, stride, key if stride == 1 else "")
        self.norm1 = spnn.SparseBatchNorm(planes)
        self.conv2 = _conv(planes, planes, 3, 1, key)
        self.norm2 = spnn.SparseBatchNorm(planes)
        self.relu = spnn.SparseReLU(inplace=True)
        self.downsample = _shortcut(inplanes, planes, stride)

    def forward(self, x: SparseConvTensor) -> Any:
        out = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(out)) + self.downsample(x))


class _Bottleneck(spnn.SparseModule):
    expansion: ClassVar[int] = 4

    def __init__(self, inplanes: int, planes: int, stride: int, key: str) -> None:
        super().__init__()
        self.conv1 = _conv(inplanes, planes, 1)
        self.norm1 = spnn.SparseBatchNorm(planes)
        self.conv2 = _conv(planes, planes, 3, stride, key if stride == 1 else "")
        self.norm2 = spnn.SparseBatchNorm(planes)
        self.conv3 = _conv(planes, planes * 4, 1)
        self.norm3 = spnn.SparseBatchNorm(planes * 4)
        self.relu = spnn.SparseReLU(inplace=True)
        self.downsample = _shortcut(inplanes, planes * 4, stride)

    def forward(self, x: SparseConvTensor) -> Any:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)))
        return self.relu(self.norm3(self.conv3(out)) + self.downsample(x))


_BLOCKS: dict[str, type[_Basic] | type[_Bottleneck]] = {
    "basic": _Basic,
    "bottleneck": _Bottleneck,
}


def _shortcut(inplanes: int, width: int, stride: int) -> nn.Module:
    if stride == 1 and inplanes == width:
        return spnn.SparseIdentity()
    return spnn.SparseSequential(_conv(inplanes, width, 1, stride), spnn.SparseBatchNorm(width))


def _layer(
    block: str, inplanes: int, planes: int, number: int, stride: int, key: str
) -> spnn.SparseSequential:
    kind = _BLOCKS[block]
    blocks = [kind(inplanes, planes, stride, key)]
    blocks += [kind(planes * kind.expansion, planes, 1, key) for _ in range(number - 1)]
    return spnn.SparseSequential(*blocks)


class MinkowskiUNet(nn.Module):
    """MinkowskiEngine's residual U-Net; `MinkowskiUNet.named("MinkUNet34C", 3, 20)`.

    Args:
        in_channels: features of a voxel.
        out_channels: logits.
        planes: widths of the four stages down, then up.
        block: "basic" or "bottleneck".
        layers: residual blocks of each stage.
        init_dim: width of the stem.
        stem_kernel: kernel size of the stem.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        planes: Sequence[int] = _PLAIN,
        block: str = "basic",
        layers: Sequence[int] = (2,) * 8,
        init_dim: int = 32,
        stem_kernel: int = 5,
    ) -> None:
        super().__init__()
        grow = _BLOCKS[block].expansion
        self.conv0p1s1 = _conv(in_channels, init_dim, stem_kernel, 1, "p1")
        self.bn0 = spnn.SparseBatchNorm(init_dim)
        width = init_dim
        for stage in range(4):
            name = f"conv{stage + 1}p{2**stage}s2"
            self.add_module(name, _conv(width, width, 2, 2, f"down{stage + 1}"))
            self.add_module(f"bn{stage + 1}", spnn.SparseBatchNorm(width))
            key = f"p{2 ** (stage + 1)}"
            stages = _layer(block, width, planes[stage], layers[stage], 1, key)
            self.add_module(f"block{stage + 1}", stages)
            width = planes[stage] * grow
        skips = [init_dim, *(planes[stage] * grow for stage in range(3))]
        for stage in range(4, 8):
            up = spnn.SparseInverseConv3d(width, planes[stage], 2, f"down{8 - stage}", bias=False)
            self.add_module(f"convtr{stage}p{2 ** (8 - stage)}s2", up)
            self.add_module(f"bntr{stage}", spnn.SparseBatchNorm(planes[stage]))
            width = planes[stage] + skips[7 - stage]
            key = f"p{2 ** (7 - stage)}"
            stages = _layer(block, width, planes[stage], layers[stage], 1, key)
            self.add_module(f"block{stage + 1}", stages)
            width = planes[stage] * grow
        self.final = spnn.SubMConv3d(width, out_channels, 1)
        self.relu = spnn.SparseReLU(inplace=True)

    @classmethod
    def named(cls, name: str, in_channels: int, out_channels: int) -> MinkowskiUNet:
        """One of `UNETS`."""
        if name not in UNETS:
            raise ValueError(f"name must be one of {sorted(UNETS)}, got {name!r}")
        return cls(in_channels, out_channels, **UNETS[name])

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """Logits on the sites of `x`.

        Args:
            x: voxels, `in_channels` features.
        """
        y = self.relu(self.bn0(self.conv0p1s1(x)))
        skips = [y]
        for stage in range(4):
            y = self._step(f"conv{stage + 1}p{2**stage}s2", f"bn{stage + 1}", y)
            y = self.get_submodule(f"block{stage + 1}")(y)
            skips.append(y)
        skips.pop()
        for stage in range(4, 8):
            y = self._step(f"convtr{stage}p{2 ** (8 - stage)}s2", f"bntr{stage}", y)
            y = self.get_submodule(f"block{stage + 1}")(joined(y, skips.pop()))
        return self.final(y)  # type: ignore[no-any-return]

    def _step(self, conv: str, norm: str, y: SparseConvTensor) -> Any:
        return self.relu(self.get_submodule(norm)(self.get_submodule(conv)(y)))


class _InstanceNorm(spnn.SparseModule):
    """Norm of each channel over each sample's sites, as MinkowskiEngine's."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        batch = x.indices[:, 0].long()
        rows = standardize_segments(x.features, batch, x.batch_size, 1e-8)
        return x.replace_feature(rows * self.weight + self.bias)


class MinkowskiResNet(nn.Module):
    """MinkowskiEngine's residual classifier; `MinkowskiResNet.named("ResNet34", 3, 40)`.

    Args:
        in_channels: features of a voxel.
        out_channels: logits.
        block: "basic" or "bottleneck".
        layers: residual blocks of each stage.
        planes: widths of the stages.
        init_dim: width of the stem.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        block: str = "basic",
        layers: Sequence[int] = (2, 2, 2, 2),
        planes: Sequence[int] = (64, 128, 256, 512),
        init_dim: int = 64,
    ) -> None:
        super().__init__()
        self.conv1 = spnn.SparseSequential(
            _conv(in_channels, init_dim, 3, 2),
            _InstanceNorm(init_dim),
            nn.ReLU(inplace=True),
            spnn.SparseMaxPool3d(2, 2, rule="floor"),
        )
        width = init_dim
        for stage, (planes_here, number) in enumerate(zip(planes, layers, strict=True), 1):
            key = f"layer{stage}"
            self.add_module(key, _layer(block, width, planes_here, number, 2, key))
            width = planes_here * _BLOCKS[block].expansion
        self.conv5 = spnn.SparseSequential(
            nn.Dropout(), _conv(width, width, 3, 3), _InstanceNorm(width), nn.GELU()
        )
        self.glob_pool = spnn.SparseGlobalMaxPool()
        self.final = spnn.Linear(width, out_channels)

    @classmethod
    def named(cls, name: str, in_channels: int, out_channels: int) -> MinkowskiResNet:
        """One of `RESNETS`."""
        if name not in RESNETS:
            raise ValueError(f"name must be one of {sorted(RESNETS)}, got {name!r}")
        return cls(in_channels, out_channels, **RESNETS[name])

    def forward(self, x: SparseConvTensor) -> torch.Tensor:
        """Logits [B, out_channels] of each sample.

        Args:
            x: voxels, `in_channels` features.
        """
        y = self.conv1(x)
        for stage in range(1, 5):
            y = self.get_submodule(f"layer{stage}")(y)
        return self.final(self.glob_pool(self.conv5(y)))  # type: ignore[no-any-return]


class _Sinusoidal(nn.Module):
    """sin(x kernel + bias) coef, of rows."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.rand(in_channels, out_channels))
        self.bias = nn.Parameter(torch.rand(1, out_channels))
        self.coef = nn.Parameter(torch.rand(1, out_channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return sinusoidal(x, self.kernel, self.bias, self.coef)


def _field_network(in_channels: int, width: int) -> nn.Sequential:
    def norm() -> nn.Module:
        return spnn.SparseBatchNorm(width)

    first = [_Sinusoidal(in_channels, width), norm(), nn.ReLU(inplace=True)]
    return nn.Sequential(*first, spnn.Linear(width, width), norm(), nn.ReLU(inplace=True))


class MinkowskiFieldNet(MinkowskiResNet):
    """MinkowskiEngine's ResFieldNet: networks on points, then `MinkowskiResNet` on their voxels.

    `MinkowskiFieldNet.named("ResNet14", 3, 40)` is its ResFieldNet14.

    Args:
        in_channels: features of a point.
        out_channels: logits.
        block: see `MinkowskiResNet`, as the next three.
        layers: see `block`.
        planes: see `block`.
        init_dim: see `block`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        block: str = "basic",
        layers: Sequence[int] = (2, 2, 2, 2),
        planes: Sequence[int] = (64, 128, 256, 512),
        init_dim: int = 64,
    ) -> None:
        super().__init__(64, out_channels, block, layers, planes, init_dim)
        self.field_network = _field_network(in_channels, 32)
        self.field_network2 = _field_network(32 + in_channels, 64)

    def forward(  # type: ignore[override]
        self, features: torch.Tensor, points: torch.Tensor
    ) -> torch.Tensor:
        """Logits [B, out_channels] of each sample.

        Args:
            features: [N, in_channels] of the points.
            points: floating [N, 4], batch id, then position in units of a voxel.
        """
        cells = quantize(points, 1.0)
        coarse = voxelize(self.field_network(features), cells)
        seen = spread_segments(coarse.features, coarse.inverse)
        fine = voxelize(self.field_network2(torch.cat([seen, features], 1)), cells)
        batch = int(cells[:, 0].max()) + 1 if len(cells) else 1
        return super().forward(
            SparseConvTensor(fine.features, fine.indices, None, batch, check=False)
        )
