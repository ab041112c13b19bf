"""From sparse volumes to bird's-eye maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .....ops.coordinates import unique
from .....ops.segment import reduce_segments
from .....ops.voxelize import interpolate

__all__ = ["ToBEVConvolution", "ToBEVHeightCompression", "ToBEVReduction", "ToDenseBEVConvolution"]


def _merged(input: Any, feats: torch.Tensor, indices: torch.Tensor, stride: Any, how: str) -> Any:
    first, inverse = unique(indices)
    merged = reduce_segments(feats, inverse, len(first), how)
    coords = type(input).from_indices(indices[first].contiguous(), stride)
    return type(input)(merged, coords, stride)


def _by_height(feats: torch.Tensor, kernel: torch.Tensor, height: torch.Tensor) -> torch.Tensor:
    """Each row times the matrix of its height."""
    taps, _, width = kernel.shape
    wide = feats @ kernel.permute(1, 0, 2).reshape(feats.shape[1], -1)
    rows = torch.arange(len(feats), device=feats.device) * taps + height.long()
    ones = feats.new_ones((len(feats), 1))
    made: torch.Tensor = interpolate(wide.reshape(-1, width), rows.int()[:, None], ones)
    return made


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
        indices = input.sites().indices
        moved = indices.clone()
        shift = self.offset[0, :3].to(indices)
        if not input.contracted:
            unit = shift.new_tensor(list(input.stride))
            shift = torch.div(shift, unit, rounding_mode="trunc")
        moved[:, 1:] -= shift
        return torch.as_tensor(moved)

    def _grid(self, input: Any, feats: torch.Tensor, axes: list[int]) -> torch.Tensor:
        places = self._places(input)
        sizes = [int(self.shape[axis]) for axis in axes]
        flat = places[:, 0].long()
        for axis, size in zip(axes, sizes, strict=True):
            flat = flat * size + places[:, 1 + axis].clamp(0, size - 1).long()
        batch = input.sites().batch_size
        grid = reduce_segments(feats, flat, batch * math.prod(sizes), "sum")
        return grid.reshape(batch, *sizes, -1)


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
        bound = 1 / math.sqrt(self.in_channels)
        nn.init.uniform_(self.kernel, -bound, bound)

    def forward(self, input: Any) -> torch.Tensor:
        """Convert."""
        height = input.sites().indices[:, 1 + self.dim]
        feats = _by_height(input.feats, self.kernel, height) + self.bias
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
        bound = 1 / math.sqrt(self.in_channels)
        nn.init.uniform_(self.kernel, -bound, bound)

    def forward(self, input: Any) -> Any:
        """Convert."""
        indices = input.sites().indices.clone()
        feats = _by_height(input.feats, self.kernel, indices[:, 1 + self.dim]) + self.bias
        indices[:, 1 + self.dim] = 0
        indices[:, 1:] = torch.div(indices[:, 1:], self.stride, rounding_mode="floor")
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
