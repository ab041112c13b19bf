"""From sparse volumes to bird's-eye maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .....nn.initial import uniform_by_fan_
from .....ops.conv import conv
from .....ops.coordinates import cells_of
from .....ops.dense import to_dense
from .....ops.lattice import window
from .....ops.voxelize import voxelize

__all__ = ["ToBEVConvolution", "ToBEVHeightCompression", "ToBEVReduction", "ToDenseBEVConvolution"]


def _merged(input: Any, feats: torch.Tensor, indices: torch.Tensor, stride: Any, how: str) -> Any:
    merged = voxelize(feats, indices, how)
    return type(input)(merged.features, type(input).from_indices(merged.indices, stride), stride)


def _by_height(layer: Any, input: Any) -> torch.Tensor:
    """Each row times the matrix of its height, and the bias."""
    sites = input.sites()
    pairs = sites.pointwise(sites.indices[:, 1 + layer.dim], len(layer.kernel))
    bias = layer.bias.reshape(-1) if isinstance(layer.bias, torch.Tensor) else None
    return conv(input.feats, layer.kernel.permute(2, 0, 1), pairs, bias)


class ToBEVReduction(nn.Module):
    """Mean over one axis; the axis stays, at 0.

    Args:
        dim: which of x, y, z.
    """

    def __init__(self, dim: int = 1) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim = {self.dim}"

    def forward(self, input: Any) -> Any:
        """Reduce."""
        indices = input.sites().indices.clone()
        indices[:, 1 + self.dim] = 0
        return _merged(input, input.feats, indices, input.stride, "mean")


class _Dense(nn.Module):
    offset: torch.Tensor
    shape: torch.Tensor

    def __init__(
        self, shape: Sequence[int] | torch.Tensor, offset: Sequence[int], dim: int
    ) -> None:
        super().__init__()
        self.register_buffer("offset", torch.tensor([[*offset, 0]], dtype=torch.int32))
        self.register_buffer("shape", torch.as_tensor(shape).int())
        self.dim = dim
        self.bev_dims = [axis for axis in range(3) if axis != dim]

    def _places(self, input: Any) -> torch.Tensor:
        """(batch, x, y, z) in units of the stride, the offset taken off."""
        unit = None if input.contracted else input.stride
        return window(input.sites().indices, self.offset[0, :3], unit, toward_zero=True)

    def _grid(self, input: Any, feats: torch.Tensor, axes: list[int]) -> torch.Tensor:
        places = self._places(input)
        sizes = [int(self.shape[axis]) for axis in axes]
        columns = [places[:, 1 + a].clamp(0, n - 1) for a, n in zip(axes, sizes, strict=True)]
        merged = voxelize(feats, torch.stack([places[:, 0], *columns], 1), "sum")
        return to_dense(merged.features, merged.indices, sizes, input.sites().batch_size)


class ToDenseBEVConvolution(_Dense):
    """Each height has a matrix of its own; a dense map [B, C_out, *rest] of the sums.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        shape: grid.
        offset: taken off the coordinates.
        dim: which of x, y, z is the height.
        bias: add a bias to every row.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        shape: Sequence[int] | torch.Tensor,
        offset: tuple[int, int, int] = (0, 0, 0),
        dim: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__(shape, offset, dim)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.n_kernels = int(self.shape[dim])
        self.kernel = nn.Parameter(torch.zeros(self.n_kernels, in_channels, out_channels))
        self.bias: Any = nn.Parameter(torch.zeros(1, out_channels)) if bias else 0
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(C_in)."""
        uniform_by_fan_(self.in_channels, self.kernel)

    def forward(self, input: Any) -> torch.Tensor:
        """Convert."""
        feats = _by_height(self, input)
        return self._grid(input, feats, self.bev_dims).permute(0, 3, 1, 2).contiguous()


class ToBEVConvolution(nn.Module):
    """Each height has a matrix of its own; a sparse map of the sums, the height at 0.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        n_kernels: number of heights.
        stride: of the map.
        dim: which of x, y, z is the height.
        bias: add a bias to every row.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_kernels: int,
        stride: int = 1,
        dim: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.n_kernels = n_kernels
        self.stride = stride
        self.dim = dim
        self.kernel = nn.Parameter(torch.zeros(n_kernels, in_channels, out_channels))
        self.bias: Any = nn.Parameter(torch.zeros(1, out_channels)) if bias else 0
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1/sqrt(C_in)."""
        uniform_by_fan_(self.in_channels, self.kernel)

    def forward(self, input: Any) -> Any:
        """Convert."""
        indices = input.sites().indices.clone()
        feats = _by_height(self, input)
        indices[:, 1 + self.dim] = 0
        indices = cells_of(indices, [self.stride] * 3)
        stride = tuple(s * self.stride for s in input.stride)
        return _merged(input, feats, indices, stride, "sum")


class ToBEVHeightCompression(_Dense):
    """A dense map [B, C * height, *rest]: the heights as channels.

    Args:
        channels: C.
        shape: grid.
        offset: taken off the coordinates.
        dim: which of x, y, z is the height.
    """

    def __init__(
        self,
        channels: int,
        shape: Sequence[int] | torch.Tensor,
        offset: tuple[int, int, int] = (0, 0, 0),
        dim: int = 1,
    ) -> None:
        super().__init__(shape, offset, dim)
        self.channels = channels

    def forward(self, input: Any) -> torch.Tensor:
        """Convert."""
        grid = self._grid(input, input.feats, [*self.bev_dims, self.dim])
        return grid.flatten(3).permute(0, 3, 1, 2).contiguous()
