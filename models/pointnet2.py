"""PointNet++: classification and segmentation, at one radius or several (SSG, MSG).

Set abstraction: farthest points become centres, each gathers the points within a radius, a shared
MLP and a maximum make its feature. Feature propagation: the way back by the three nearest centres.

Source: Qi, Yi, Su, Guibas, "PointNet++: Deep Hierarchical Feature Learning on Point Sets in a
Metric Space", NeurIPS 2017.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from sparse3d.nn import Linear
from sparse3d.pointops import (
    ball_query,
    furthest_point_sample,
    gather,
    group,
    inverse_distance_weights,
    three_interpolate,
    three_nn,
)

__all__ = ["PointNet2Classifier", "PointNet2Segmenter"]


def shared_mlp(widths: Sequence[int]) -> nn.Sequential:
    """1 x 1 convolutions with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for channels, width in itertools.pairwise(widths):
        layers += [nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers)


class SetAbstraction(nn.Module):
    """Centres, their neighbourhoods at several radii, one feature a centre.

    Args:
        channels: of the incoming features (0: positions only).
        centres: farthest points taken; None makes the whole cloud one neighbourhood.
        radii: one a scale.
        samples: neighbours a scale.
        widths: MLP widths a scale.
    """

    def __init__(
        self,
        channels: int,
        centres: int | None,
        radii: Sequence[float],
        samples: Sequence[int],
        widths: Sequence[Sequence[int]],
    ) -> None:
        super().__init__()
        self.centres, self.radii, self.samples = centres, tuple(radii), tuple(samples)
        self.mlps = nn.ModuleList(shared_mlp([channels + 3, *scale]) for scale in widths)
        self.out_channels = sum(scale[-1] for scale in widths)

    def forward(
        self, xyz: torch.Tensor, features: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, N, 3), (B, C, N) -> (B, n, 3), (B, C', n)."""
        if self.centres is None:
            origin = xyz.new_zeros((xyz.shape[0], 1, 3))
            parts = [xyz.transpose(1, 2)] + ([] if features is None else [features])
            return origin, self.mlps[0](torch.cat(parts, 1)[:, :, None]).amax(3)
        columns = xyz.transpose(1, 2).contiguous()
        taken = furthest_point_sample(xyz, self.centres)
        centre = gather(columns, taken)
        pooled = []
        for radius, count, mlp in zip(self.radii, self.samples, self.mlps, strict=True):
            _, index = ball_query(centre.transpose(1, 2).detach(), xyz.detach(), radius, count)
            index = torch.where(index < 0, index[..., :1], index)  # a centre is in its own ball
            near = [group(columns, index) - centre[..., None]]
            if features is not None:
                near.append(group(features, index))
            pooled.append(mlp(torch.cat(near, 1)).amax(3))
        return centre.transpose(1, 2).contiguous(), torch.cat(pooled, 1)


class FeaturePropagation(nn.Module):
    """Coarse features onto fine points by inverse distance of the three nearest centres."""

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.mlp = shared_mlp([channels, *widths])

    def forward(
        self,
        fine: torch.Tensor,
        coarse: torch.Tensor,
        fine_features: torch.Tensor | None,
        coarse_features: torch.Tensor,
    ) -> torch.Tensor:
        """(B, N, 3), (B, n, 3), (B, C, N), (B, c, n) -> (B, C', N)."""
        if coarse.shape[1] < 3:
            spread = coarse_features[:, :, :1].expand(-1, -1, fine.shape[1])
        else:
            distance, index = three_nn(fine, coarse)
            weight = inverse_distance_weights(distance)
            spread = three_interpolate(coarse_features, index, weight)
        if fine_features is not None:
            spread = torch.cat([spread, fine_features], 1)
        out: torch.Tensor = self.mlp(spread[..., None])
        return out[..., 0]


def _encoder(channels: int, msg: bool, points: int) -> list[SetAbstraction]:
    """Two levels of set abstraction, then the whole cloud."""
    if msg:
        first = SetAbstraction(
            channels,
            points // 2,
            (0.1, 0.2, 0.4),
            (16, 32, 128),
            ((32, 32, 64), (64, 64, 128), (64, 96, 128)),
        )
        second = SetAbstraction(
            first.out_channels,
            points // 8,
            (0.2, 0.4, 0.8),
            (32, 64, 128),
            ((64, 64, 128), (128, 128, 256), (128, 128, 256)),
        )
    else:
        first = SetAbstraction(channels, points // 2, (0.2,), (32,), ((64, 64, 128),))
        second = SetAbstraction(first.out_channels, points // 8, (0.4,), (64,), ((128, 128, 256),))
    last = SetAbstraction(second.out_channels, None, (), (), ((256, 512, 1024),))
    return [first, second, last]


class PointNet2Classifier(nn.Module):
    """A class for each cloud.

    Args:
        classes: number of classes.
        channels: of the features that come with the points.
        msg: several radii a level instead of one.
        points: the cloud size the numbers of centres are made for.

    Example:
        >>> import torch
        >>> from sparse3d.models.pointnet2 import PointNet2Classifier
        >>> PointNet2Classifier(40, points=256).eval()(torch.rand(2, 256, 3)).shape
        torch.Size([2, 40])
    """

    def __init__(
        self, classes: int, channels: int = 0, msg: bool = False, points: int = 1024
    ) -> None:
        super().__init__()
        self.levels = nn.ModuleList(_encoder(channels, msg, points))
        self.head = nn.Sequential(
            Linear(1024, 512, bias=False),
            nn.BatchNorm1d(512),
            nn.ReLU(),
            nn.Dropout(0.4),
            Linear(512, 256, bias=False),
            nn.BatchNorm1d(256),
            nn.ReLU(),
            nn.Dropout(0.4),
            Linear(256, classes),
        )

    def forward(self, xyz: torch.Tensor, features: torch.Tensor | None = None) -> torch.Tensor:
        """(B, N, 3) in about a unit ball, (B, C, N) -> (B, classes)."""
        for level in self.levels:
            xyz, features = level(xyz, features)
        if features is None:
            raise ValueError("levels must make features, got None")
        out: torch.Tensor = self.head(features[:, :, 0])
        return out


class PointNet2Segmenter(nn.Module):
    """A class for each point; arguments as `PointNet2Classifier`.

    Example:
        >>> import torch
        >>> from sparse3d.models.pointnet2 import PointNet2Segmenter
        >>> PointNet2Segmenter(6, points=256).eval()(torch.rand(2, 256, 3)).shape
        torch.Size([2, 6, 256])
    """

    def __init__(
        self, classes: int, channels: int = 0, msg: bool = False, points: int = 1024
    ) -> None:
        super().__init__()
        levels = _encoder(channels, msg, points)
        self.levels = nn.ModuleList(levels)
        first, second = levels[0].out_channels, levels[1].out_channels
        self.up = nn.ModuleList(
            [
                FeaturePropagation(1024 + second, (256, 256)),
                FeaturePropagation(256 + first, (256, 128)),
                FeaturePropagation(128 + channels, (128, 128, 128)),
            ]
        )
        self.head = nn.Sequential(
            nn.Conv1d(128, 128, 1, bias=False),
            nn.BatchNorm1d(128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Conv1d(128, classes, 1),
        )

    def forward(self, xyz: torch.Tensor, features: torch.Tensor | None = None) -> torch.Tensor:
        """(B, N, 3) in about a unit ball, (B, C, N) -> (B, classes, N)."""
        trail: list[tuple[torch.Tensor, torch.Tensor | None]] = [(xyz, features)]
        for level in self.levels:
            trail.append(level(*trail[-1]))
        coarse, carried = trail.pop()
        for layer in self.up:
            fine, fine_features = trail.pop()
            carried = layer(fine, coarse, fine_features, carried)
            coarse = fine
        out: torch.Tensor = self.head(carried)
        return out
