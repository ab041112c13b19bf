"""SPVCNN, spvnas's network of a sparse U-Net and a point branch.

Source: Tang et al., "Searching Efficient 3D Architectures with Sparse Point-Voxel Convolution",
ECCV 2020.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sparse3d import SparseConvTensor, devoxelize, voxelize
from sparse3d.models._blocks import joined
from sparse3d.models.minkunet import MinkUNet, scaled_widths
from sparse3d.nn import Linear
from sparse3d.ops.coordinates import lookup
from sparse3d.ops.segment import reduce_segments

__all__ = ["SPVCNN"]


class SPVCNN(MinkUNet):
    """Sparse U-Net whose levels exchange features with the points.

    Args:
        in_channels: features of a point.
        num_classes: logits.
        cr: channel ratio.
        pres: size of a unit of the points' positions.
        vres: edge of a voxel.
    """

    def __init__(
        self,
        in_channels: int = 4,
        num_classes: int = 19,
        cr: float = 1.0,
        pres: float = 0.05,
        vres: float = 0.05,
    ) -> None:
        widths = scaled_widths(cr)
        super().__init__(in_channels, num_classes, widths)
        self.scale = pres / vres
        pairs = ((widths[0], widths[4]), (widths[4], widths[6]), (widths[6], widths[8]))
        self.point_transforms = nn.ModuleList(
            nn.Sequential(Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(True)) for a, b in pairs
        )
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: SparseConvTensor, points: torch.Tensor | None = None) -> torch.Tensor:
        """Logits [N, num_classes] of every row of `x`.

        Args:
            x: the points as rows at integer positions (batch, *position in units of `pres`).
            points: float positions [N, 4] to take instead of the rows' own.
        """
        places = x.indices.to(x.features.dtype) if points is None else points
        places = torch.cat([places[:, :1], places[:, 1:] * self.scale], 1)
        cells = places.floor().int()
        made = voxelize(x.features, cells)
        grid = None if self.scale != 1 else x.spatial_shape
        first = SparseConvTensor(made.features, made.indices, grid, x.batch_size, check=False)
        first.coordinates.trust_distinct()
        stem = self.stem(first)
        z = _to_points(stem, places, 1)
        levels = [_to_voxels(stem, z, cells, 1)]
        for stage in range(1, 5):
            levels.append(self.get_submodule(f"stage{stage}")(levels[-1]))
        z = _to_points(levels[4], places, 16) + self.point_transforms[0](z)
        y = self._dropped(_to_voxels(levels[4], z, cells, 16))
        y = self._raised(2, self._raised(1, y, levels[3]), levels[2])
        z = _to_points(y, places, 4) + self.point_transforms[1](z)
        y = self._dropped(_to_voxels(y, z, cells, 4))
        y = self._raised(4, self._raised(3, y, levels[1]), stem)
        z = _to_points(y, places, 1) + self.point_transforms[2](z)
        return self.classifier(z)  # type: ignore[no-any-return]

    def _raised(self, stage: int, y: SparseConvTensor, skip: SparseConvTensor) -> Any:
        up, blocks = self.get_submodule(f"up{stage}").children()
        return blocks(joined(up(y), skip))

    def _dropped(self, y: SparseConvTensor) -> SparseConvTensor:
        return y.replace_feature(self.dropout(y.features))


def _to_points(x: SparseConvTensor, places: torch.Tensor, stride: int) -> torch.Tensor:
    """Voxel features at the points, trilinear over the voxels present."""
    here = torch.cat([places[:, :1], places[:, 1:] / stride], 1)
    return devoxelize(x.features, coords=x.indices, points=here, renormalize=True)


def _to_voxels(
    x: SparseConvTensor, z: torch.Tensor, cells: torch.Tensor, stride: int
) -> SparseConvTensor:
    """Mean of the points of each voxel, on the voxels of `x`."""
    coarse = torch.div(cells[:, 1:], stride, rounding_mode="floor")
    places = torch.cat([cells[:, :1], coarse], 1).contiguous()
    rows = lookup(x.indices, x.coordinates.table(), places).long()
    return x.replace_feature(reduce_segments(z, rows, len(x), "mean"))
