"""Point Transformer V1 for segmentation, through Pointcept's point operators.

Parameters carry Pointcept's names (`PointTransformerSeg`), so that its checkpoints load.

Source: Zhao, Jiang, Jia, Torr, Koltun, "Point Transformer", ICCV 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from sparse3d.nn import Linear
from sparse3d.ops.segment import reduce_segments, take_rows
from sparse3d.pointops import pointcept

__all__ = ["PointTransformerSeg"]

Cloud = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Positions (n, 3), features (n, c), inclusive ends of the clouds (b,) int32."""


class ChannelNorm(nn.BatchNorm1d):
    """Batch norm over the last axis of (n, c) or (n, ns, c)."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if input.ndim == 2:
            return super().forward(input)
        return super().forward(input.transpose(1, 2)).transpose(1, 2)


class PointTransformerLayer(nn.Module):
    """Vector attention over the nearest points."""

    def __init__(self, in_planes: int, out_planes: int, share_planes: int, nsample: int) -> None:
        super().__init__()
        self.share_planes, self.nsample = share_planes, nsample
        shared = out_planes // share_planes
        self.linear_q = Linear(in_planes, out_planes)
        self.linear_k = Linear(in_planes, out_planes)
        self.linear_v = Linear(in_planes, out_planes)
        self.linear_p = nn.Sequential(
            Linear(3, 3), ChannelNorm(3), nn.ReLU(), Linear(3, out_planes)
        )
        self.linear_w = nn.Sequential(
            ChannelNorm(out_planes),
            nn.ReLU(),
            Linear(out_planes, shared),
            ChannelNorm(shared),
            nn.ReLU(),
            Linear(shared, shared),
        )

    def forward(self, cloud: Cloud) -> torch.Tensor:
        xyz, features, offset = cloud
        query, value = self.linear_q(features), self.linear_v(features)
        keys, index = pointcept.knn_query_and_group(
            self.linear_k(features), xyz, offset, xyz, offset, nsample=self.nsample, with_xyz=True
        )
        values, _ = pointcept.knn_query_and_group(value, xyz, offset, xyz, offset, idx=index)
        apart = self.linear_p(keys[..., :3])  # (n, ns, c)
        weight = self.linear_w(keys[..., 3:] - query[:, None] + apart)
        weight = weight.masked_fill((index < 0)[..., None], float("-inf")).softmax(1)
        n, samples, channels = values.shape
        split = (values + apart).view(n, samples, self.share_planes, -1)
        out: torch.Tensor = (split * weight[:, :, None]).sum(1)
        return out.reshape(n, channels)


class TransitionDown(nn.Module):
    """Farthest points take the maximum over their nearest points (stride 1: a linear layer)."""

    def __init__(self, in_planes: int, out_planes: int, stride: int, nsample: int) -> None:
        super().__init__()
        self.stride, self.nsample = stride, nsample
        self.linear = Linear(in_planes + (3 if stride > 1 else 0), out_planes, bias=False)
        self.bn = nn.BatchNorm1d(out_planes)

    def forward(self, cloud: Cloud) -> Cloud:
        xyz, features, offset = cloud
        if self.stride == 1:
            return xyz, torch.relu(self.bn(self.linear(features))), offset
        ends = offset.cpu().long()
        sizes = torch.diff(ends, prepend=ends.new_zeros(1))
        kept = torch.where(sizes > 0, (sizes // self.stride).clamp_min(1), 0)
        new_offset = kept.cumsum(0).int().to(offset.device)
        taken = pointcept.farthest_point_sampling(xyz, offset, new_offset).long()
        centres = xyz[taken]
        groups, index = pointcept.knn_query_and_group(
            features, xyz, offset, centres, new_offset, nsample=self.nsample, with_xyz=True
        )
        lifted = self.bn(self.linear(groups).transpose(1, 2)).relu().transpose(1, 2)
        pooled = lifted.masked_fill((index < 0)[..., None], float("-inf")).amax(1)
        return centres, pooled, new_offset


class TransitionUp(nn.Module):
    """Coarse features onto fine points; at the bottom, each cloud's mean joins its points."""

    def __init__(self, in_planes: int, out_planes: int | None = None) -> None:
        super().__init__()
        if out_planes is None:
            self.linear1 = nn.Sequential(
                Linear(2 * in_planes, in_planes), nn.BatchNorm1d(in_planes), nn.ReLU()
            )
            self.linear2 = nn.Sequential(Linear(in_planes, in_planes), nn.ReLU())
        else:
            self.linear1 = nn.Sequential(
                Linear(out_planes, out_planes), nn.BatchNorm1d(out_planes), nn.ReLU()
            )
            self.linear2 = nn.Sequential(
                Linear(in_planes, out_planes), nn.BatchNorm1d(out_planes), nn.ReLU()
            )

    def forward(self, fine: Cloud, coarse: Cloud | None = None) -> torch.Tensor:
        xyz, features, offset = fine
        if coarse is not None:
            moved = pointcept.interpolation(
                coarse[0], xyz, self.linear2(coarse[1]), coarse[2], offset
            )
            out: torch.Tensor = self.linear1(features) + moved
            return out
        ids = pointcept.offset2batch(offset)
        mean = self.linear2(reduce_segments(features, ids, len(offset), "mean"))
        joined: torch.Tensor = self.linear1(torch.cat([features, take_rows(mean, ids)], 1))
        return joined


class Bottleneck(nn.Module):
    """Linear, attention, linear, with a residual."""

    def __init__(self, planes: int, share_planes: int, nsample: int) -> None:
        super().__init__()
        self.linear1 = Linear(planes, planes, bias=False)
        self.bn1 = nn.BatchNorm1d(planes)
        self.transformer = PointTransformerLayer(planes, planes, share_planes, nsample)
        self.bn2 = nn.BatchNorm1d(planes)
        self.linear3 = Linear(planes, planes, bias=False)
        self.bn3 = nn.BatchNorm1d(planes)

    def forward(self, cloud: Cloud) -> Cloud:
        xyz, features, offset = cloud
        hidden = torch.relu(self.bn1(self.linear1(features)))
        hidden = torch.relu(self.bn2(self.transformer((xyz, hidden, offset))))
        return xyz, torch.relu(self.bn3(self.linear3(hidden)) + features), offset


class PointTransformerSeg(nn.Module):
    """A class for each point of flat clouds.

    Args:
        in_channels: of the point features (positions go in besides).
        num_classes: number of classes.
        blocks: bottlenecks of the five levels: (2, 3, 4, 6, 3) is Seg50, (1, 1, 1, 1, 1) Seg26.
        planes: channels of the levels.
        strides: points kept, 1 in stride, at each level.
        nsample: neighbours at each level.
        share_planes: channels that share an attention weight.

    Example:
        >>> import torch
        >>> from sparse3d.models.point_transformer import PointTransformerSeg
        >>> net = PointTransformerSeg(3, 5, (1, 1), (8, 16), (1, 4), (4, 4)).eval()
        >>> net(torch.rand(70, 3), torch.rand(70, 3), torch.tensor([30, 70])).shape
        torch.Size([70, 5])
    """

    def __init__(
        self,
        in_channels: int = 6,
        num_classes: int = 13,
        blocks: Sequence[int] = (2, 3, 4, 6, 3),
        planes: Sequence[int] = (32, 64, 128, 256, 512),
        strides: Sequence[int] = (1, 4, 4, 4, 4),
        nsample: Sequence[int] = (8, 16, 16, 16, 16),
        share_planes: int = 8,
    ) -> None:
        super().__init__()
        self.depth = len(planes)
        before = in_channels
        for level, (count, width) in enumerate(zip(blocks, planes, strict=True)):
            layers: list[nn.Module] = [
                TransitionDown(before, width, strides[level], nsample[level])
            ]
            layers += [Bottleneck(width, share_planes, nsample[level]) for _ in range(count)]
            self.add_module(f"enc{level + 1}", nn.Sequential(*layers))
            before = width
        for level, width in enumerate(planes):
            last = level == self.depth - 1
            up = TransitionUp(width) if last else TransitionUp(planes[level + 1], width)
            block = Bottleneck(width, share_planes, nsample[level])
            self.add_module(f"dec{level + 1}", nn.Sequential(up, block))
        self.cls = nn.Sequential(
            Linear(planes[0], planes[0]),
            nn.BatchNorm1d(planes[0]),
            nn.ReLU(),
            Linear(planes[0], num_classes),
        )

    def forward(
        self, xyz: torch.Tensor, features: torch.Tensor, offset: torch.Tensor
    ) -> torch.Tensor:
        """(n, 3), (n, in_channels), inclusive ends (b,) -> (n, num_classes)."""
        cloud: Cloud = (xyz, features, offset)
        levels: list[Cloud] = []
        for level in range(self.depth):
            cloud = getattr(self, f"enc{level + 1}")(cloud)
            levels.append(cloud)
        coarse: Cloud | None = None
        for level in reversed(range(self.depth)):
            up, block = getattr(self, f"dec{level + 1}")
            here = levels[level]
            coarse = block((here[0], up(here, coarse), here[2]))
        if coarse is None:
            raise ValueError("planes must name at least one level, got none")
        out: torch.Tensor = self.cls(coarse[1])
        return out
