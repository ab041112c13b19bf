"""Containers of layers that are computed in one pass, by spconv's names."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.ao.nn.intrinsic.modules.fused import _FusedModule

from ..tensor import SparseConvTensor
from ._convolution import SparseConvolution
from .modules import SparseSequential

__all__ = ["SpconvAddReLUNd", "SpconvBnAddReLUNd", "SpconvBnNd", "SpconvBnReLUNd", "SpconvReLUNd"]


def _checked(name: str, module: Any, kind: type[nn.Module]) -> nn.Module:
    if not isinstance(module, kind):
        raise TypeError(f"{name} must be {kind.__name__}, got {type(module).__name__}")
    return module


class _Fused(SparseSequential, _FusedModule):  # type: ignore[misc]
    """What `torch.ao.quantization` takes for one layer."""


class SpconvReLUNd(_Fused):
    """Convolution, ReLU."""

    def __init__(self, conv: Any, relu: Any) -> None:
        super().__init__(_checked("conv", conv, SparseConvolution), _checked("relu", relu, nn.ReLU))


class SpconvBnNd(_Fused):
    """Convolution, batch norm."""

    def __init__(self, conv: Any, bn: Any) -> None:
        super().__init__(
            _checked("conv", conv, SparseConvolution), _checked("bn", bn, nn.BatchNorm1d)
        )


class SpconvBnReLUNd(_Fused):
    """Convolution, batch norm, ReLU."""

    def __init__(self, conv: Any, bn: Any, relu: Any) -> None:
        super().__init__(
            _checked("conv", conv, SparseConvolution),
            _checked("bn", bn, nn.BatchNorm1d),
            _checked("relu", relu, nn.ReLU),
        )


class SpconvAddReLUNd(SpconvReLUNd):
    """Convolution, sum with another tensor on its output's sites, ReLU."""

    def forward(self, input: Any, add_input: SparseConvTensor) -> Any:  # type: ignore[override]
        return super().forward(input, add_input)


class SpconvBnAddReLUNd(SpconvBnReLUNd):
    """Convolution, batch norm, sum with another tensor on its output's sites, ReLU."""

    def forward(self, input: Any, add_input: SparseConvTensor) -> Any:  # type: ignore[override]
        return super().forward(input, add_input)
