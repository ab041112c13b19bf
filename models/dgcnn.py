"""DGCNN: edge convolutions over graphs that are made anew in the space of each layer's features.

Source: Wang, Sun, Liu, Sarma, Bronstein, Solomon, "Dynamic Graph CNN for Learning on Point Clouds",
ACM Transactions on Graphics 2019.
"""

from __future__ import annotations

import torch
from torch import nn

from sparse3d.nn import Linear
from sparse3d.pointops import group, knn

__all__ = ["DGCNN", "DGCNNSegmenter"]


class EdgeConv(nn.Module):
    """max over k neighbours j of MLP(x_i, x_j - x_i); neighbours by distance of features."""

    def __init__(self, channels: int, widths: tuple[int, ...], k: int) -> None:
        super().__init__()
        self.k = k
        layers: list[nn.Module] = []
        before = 2 * channels
        for width in widths:
            layers += [nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)]
            layers.append(nn.LeakyReLU(0.2))
            before = width
        self.mlp = nn.Sequential(*layers)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(B, C, N) -> (B, C', N)."""
        rows = features.detach().transpose(1, 2)
        _, index = knn(rows, rows, min(self.k, features.shape[2]))
        centre = features[..., None].expand(-1, -1, -1, index.shape[2])
        edge = torch.cat([group(features, index) - centre, centre], 1)
        out: torch.Tensor = self.mlp(edge)
        return out.amax(3)


class _Trunk(nn.Module):
    """Edge convolutions whose outputs lie side by side, and their global feature."""

    def __init__(
        self, channels: int, layers: tuple[tuple[int, ...], ...], wide: int, k: int
    ) -> None:
        super().__init__()
        self.edges = nn.ModuleList()
        for widths in layers:
            self.edges.append(EdgeConv(channels, widths, k))
            channels = widths[-1]
        self.local_channels = sum(widths[-1] for widths in layers)
        self.mix = nn.Sequential(
            nn.Conv1d(self.local_channels, wide, 1, bias=False),
            nn.BatchNorm1d(wide),
            nn.LeakyReLU(0.2),
        )

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = []
        for edge in self.edges:
            features = edge(features)
            kept.append(features)
        local = torch.cat(kept, 1)
        return local, self.mix(local)


class DGCNN(nn.Module):
    """A class for each cloud.

    Args:
        classes: number of classes.
        k: neighbours.
        channels: of a point, position included.

    Example:
        >>> import torch
        >>> from sparse3d.models.dgcnn import DGCNN
        >>> DGCNN(40, k=8).eval()(torch.rand(2, 128, 3)).shape
        torch.Size([2, 40])
    """

    def __init__(self, classes: int, k: int = 20, channels: int = 3) -> None:
        super().__init__()
        self.trunk = _Trunk(channels, ((64,), (64,), (128,), (256,)), 1024, k)
        self.head = nn.Sequential(
            Linear(2048, 512, bias=False),
            nn.BatchNorm1d(512),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.5),
            Linear(512, 256),
            nn.BatchNorm1d(256),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.5),
            Linear(256, classes),
        )

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """(B, N, channels) -> (B, classes)."""
        _, wide = self.trunk(points.transpose(1, 2).contiguous())
        out: torch.Tensor = self.head(torch.cat([wide.amax(2), wide.mean(2)], 1))
        return out


class DGCNNSegmenter(nn.Module):
    """A class for each point; arguments as `DGCNN`."""

    def __init__(self, classes: int, k: int = 20, channels: int = 3) -> None:
        super().__init__()
        self.trunk = _Trunk(channels, ((64, 64), (64, 64), (64,)), 1024, k)
        self.head = nn.Sequential(
            nn.Conv1d(1024 + self.trunk.local_channels, 512, 1, bias=False),
            nn.BatchNorm1d(512),
            nn.LeakyReLU(0.2),
            nn.Conv1d(512, 256, 1, bias=False),
            nn.BatchNorm1d(256),
            nn.LeakyReLU(0.2),
            nn.Dropout(0.5),
            nn.Conv1d(256, classes, 1),
        )

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """(B, N, channels) -> (B, classes, N)."""
        local, wide = self.trunk(points.transpose(1, 2).contiguous())
        whole = wide.amax(2, keepdim=True).expand(-1, -1, points.shape[1])
        out: torch.Tensor = self.head(torch.cat([whole, local], 1))
        return out
