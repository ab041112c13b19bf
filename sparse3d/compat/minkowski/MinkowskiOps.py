"""Linear layers, joins of tensors on one set, and conversions from and to dense tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from ... import _check
from ...nn.linear import Linear
from ...ops.rows import reduce_operands
from .MinkowskiCommon import MinkowskiModuleBase
from .MinkowskiSparseTensor import SparseTensor
from .MinkowskiTensor import Tensor
from .MinkowskiTensorField import TensorField

__all__ = [
    "MinkowskiLinear",
    "MinkowskiStackCat",
    "MinkowskiStackMean",
    "MinkowskiStackSum",
    "MinkowskiStackVar",
    "MinkowskiToDenseTensor",
    "MinkowskiToFeature",
    "MinkowskiToSparseTensor",
    "cat",
    "dense_coordinates",
    "mean",
    "to_sparse",
    "to_sparse_all",
    "var",
]

T = TypeVar("T", bound=Tensor)


class MinkowskiLinear(MinkowskiModuleBase):
    """`torch.nn.Linear` on the features, kept as `linear`."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.linear = Linear(in_features, out_features, bias=bias)

    def forward(self, input: T) -> T:
        return input._like(self.linear(input.F))

    def __repr__(self) -> str:
        linear = self.linear
        return (
            f"{type(self).__name__}(in_features={linear.in_features}, "
            f"out_features={linear.out_features}, bias={linear.bias is not None})"
        )


def _joined(
    tensors: tuple[Any, ...], function: Callable[[list[torch.Tensor]], torch.Tensor]
) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if len(tensors) < 2:
        _check.fail("sparse_tensors", "at least two", len(tensors))
    first = tensors[0]
    if not isinstance(first, Tensor):
        wanted = "SparseTensors or TensorFields"
        _check.fail_type("sparse_tensors", wanted, type(first).__name__)
    for other in tensors[1:]:
        first._is_same_key(other)
    return first._like(function([x.F for x in tensors]))


def cat(*sparse_tensors: Any) -> Any:
    """Join channels of tensors on one set."""
    return _joined(sparse_tensors, lambda rows: torch.cat(rows, -1))


def _sum(*sparse_tensors: Any) -> Any:
    """Add tensors on one set."""
    return _joined(sparse_tensors, lambda rows: reduce_operands("sum", rows))


def mean(*sparse_tensors: Any) -> Any:
    """Mean of tensors on one set."""
    return _joined(sparse_tensors, lambda rows: reduce_operands("mean", rows))


def var(*sparse_tensors: Any) -> Any:
    """Variance (biased) of tensors on one set."""
    return _joined(sparse_tensors, lambda rows: reduce_operands("var", rows))


def dense_coordinates(shape: Sequence[int]) -> torch.Tensor:
    """Coordinates int32 of every cell of a tensor [B, C, *spatial], row-major."""
    if len(shape) < 3:
        _check.fail("shape", "[B, C, *spatial]", list(shape))
    axes = [torch.arange(int(n), dtype=torch.int32) for n in (shape[0], *shape[2:])]
    return torch.stack([a.reshape(-1) for a in torch.meshgrid(*axes, indexing="ij")], 1)


def to_sparse(
    x: torch.Tensor,
    format: str | None = None,
    coordinates: torch.Tensor | None = None,
    device: torch.device | str | None = None,
) -> SparseTensor:
    """Cells of a dense tensor in which any channel is not 0.

    Args:
        x: dense, as `format` says.
        format: "BCXX..." by default; B first, C anywhere, X for the rest.
        coordinates: accepted for the peer's signature.
        device: of the result.
    """
    _check.tensor("x", x)
    layout = "BC" + "X" * (x.ndim - 2) if format is None else format
    if x.ndim < 3 or len(layout) != x.ndim or layout[0] != "B" or layout.count("C") != 1:
        _check.fail("format", f"B, one C and X's for {x.ndim} axes", repr(layout))
    rows = x.movedim(layout.index("C"), -1)
    sites = (rows != 0).any(-1).nonzero()
    features = rows[tuple(sites.unbind(1))]
    return SparseTensor(features, sites.int(), device=device)


def to_sparse_all(
    dense_tensor: torch.Tensor, coordinates: torch.Tensor | None = None
) -> SparseTensor:
    """Every cell of a dense tensor [B, C, *spatial]."""
    places = dense_coordinates(dense_tensor.shape) if coordinates is None else coordinates
    rows = dense_tensor.movedim(1, -1).reshape(-1, dense_tensor.shape[1])
    return SparseTensor(rows, places.to(dense_tensor.device))


class MinkowskiToSparseTensor(MinkowskiModuleBase):
    """A dense tensor [B, C, *spatial] or a field as a sparse tensor.

    Args:
        remove_zeros: leave out cells that are 0 in every channel.
        coordinates: those of every cell, made before; with `remove_zeros=False`.
    """

    def __init__(self, remove_zeros: bool = True, coordinates: torch.Tensor | None = None) -> None:
        super().__init__()
        if remove_zeros and coordinates is not None:
            _check.fail("coordinates", "None where remove_zeros is True", "a tensor")
        self.remove_zeros = remove_zeros
        self.coordinates = coordinates

    def forward(self, input: TensorField | torch.Tensor) -> SparseTensor:
        """Convert."""
        if isinstance(input, TensorField):
            return input.sparse()
        return to_sparse(input) if self.remove_zeros else to_sparse_all(input, self.coordinates)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MinkowskiToDenseTensor(MinkowskiModuleBase):
    """A sparse tensor as a dense one [B, C, *spatial].

    Args:
        shape: of the result; None for the smallest that holds all sites.
    """

    def __init__(self, shape: torch.Size | None = None) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, input: SparseTensor) -> torch.Tensor:
        """Convert."""
        return input.dense(shape=self.shape)[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MinkowskiToFeature(MinkowskiModuleBase):
    """The features alone."""

    def forward(self, x: Tensor) -> torch.Tensor:
        return x.F


class MinkowskiStackCat(nn.Sequential):
    """Every child on the same input, channels joined."""

    def forward(self, x: Any) -> Any:
        return cat([module(x) for module in self])


class MinkowskiStackSum(nn.Sequential):
    """Every child on the same input, added."""

    def forward(self, x: Any) -> Any:
        return _sum([module(x) for module in self])


class MinkowskiStackMean(nn.Sequential):
    """Every child on the same input, mean."""

    def forward(self, x: Any) -> Any:
        return mean([module(x) for module in self])


class MinkowskiStackVar(nn.Sequential):
    """Every child on the same input, variance."""

    def forward(self, x: Any) -> Any:
        return var([module(x) for module in self])
