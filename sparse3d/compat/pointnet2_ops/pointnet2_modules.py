"""pointnet2_ops.pointnet2_modules: set abstraction and feature propagation, same parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import nn

from ...pointops import inverse_distance_weights
from . import pointnet2_utils as utils


def build_shared_mlp(mlp_spec: Sequence[int], bn: bool = True) -> nn.Sequential:
    """1x1 convolutions, each with batch norm (if `bn`) and ReLU."""
    layers: list[nn.Module] = []
    for channels, width in itertools.pairwise(mlp_spec):
        layers.append(nn.Conv2d(channels, width, 1, bias=not bn))
        if bn:
            layers.append(nn.BatchNorm2d(width))
        layers.append(nn.ReLU(inplace=True))
    return nn.Sequential(*layers)


class PointnetSAModuleMSG(nn.Module):
    """Set abstraction at several radii."""

    def __init__(
        self,
        npoint: int | None,
        radii: Sequence[float | None],
        nsamples: Sequence[int | None],
        mlps: Sequence[Sequence[int]],
        bn: bool = True,
        use_xyz: bool = True,
    ) -> None:
        super().__init__()
        if not len(radii) == len(nsamples) == len(mlps):
            raise ValueError(
                "radii, nsamples and mlps must be of one length, "
                f"got {len(radii)}, {len(nsamples)} and {len(mlps)}"
            )
        self.npoint = npoint
        self.groupers = nn.ModuleList()
        self.mlps = nn.ModuleList()
        for radius, nsample, widths in zip(radii, nsamples, mlps, strict=True):
            if npoint is None:
                self.groupers.append(utils.GroupAll(use_xyz))
            elif radius is None or nsample is None:
                raise ValueError("radius and nsample must be given with npoint, got None")
            else:
                self.groupers.append(utils.QueryAndGroup(radius, nsample, use_xyz))
            first = widths[0] + 3 if use_xyz else widths[0]
            self.mlps.append(build_shared_mlp([first, *widths[1:]], bn))

    def forward(
        self, xyz: torch.Tensor, features: torch.Tensor | None = None
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """(B, N, 3), (B, C, N) -> (B, npoint, 3), (B, sum of last widths, npoint)."""
        new_xyz = None
        if self.npoint is not None:
            taken = utils.furthest_point_sample(xyz, self.npoint)
            columns = utils.gather_operation(xyz.transpose(1, 2).contiguous(), taken)
            new_xyz = columns.transpose(1, 2).contiguous()
        pooled = [
            mlp(grouper(xyz, new_xyz, features)).amax(3)
            for grouper, mlp in zip(self.groupers, self.mlps, strict=True)
        ]
        return new_xyz, torch.cat(pooled, 1)


class PointnetSAModule(PointnetSAModuleMSG):
    """Set abstraction at one radius."""

    def __init__(
        self,
        mlp: Sequence[int],
        npoint: int | None = None,
        radius: float | None = None,
        nsample: int | None = None,
        bn: bool = True,
        use_xyz: bool = True,
    ) -> None:
        super().__init__(npoint, [radius], [nsample], [mlp], bn, use_xyz)


class PointnetFPModule(nn.Module):
    """Feature propagation from a coarse cloud to a fine one."""

    def __init__(self, mlp: Sequence[int], bn: bool = True) -> None:
        super().__init__()
        self.mlp = build_shared_mlp(mlp, bn)

    def forward(
        self,
        unknown: torch.Tensor,
        known: torch.Tensor | None,
        unknow_feats: torch.Tensor | None,
        known_feats: torch.Tensor,
    ) -> torch.Tensor:
        """(B, n, 3), (B, m, 3), (B, C1, n), (B, C2, m) -> (B, last width, n)."""
        if known is None:
            spread = known_feats.expand(*known_feats.shape[:2], unknown.shape[1])
        else:
            distance, idx = utils.three_nn(unknown, known)
            weight = inverse_distance_weights(distance)
            spread = utils.three_interpolate(known_feats, idx, weight)
        if unknow_feats is not None:
            spread = torch.cat([spread, unknow_feats], 1)
        out: torch.Tensor = self.mlp(spread[..., None])
        return out[..., 0]
