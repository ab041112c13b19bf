"""`spconv.pytorch.core`."""

from __future__ import annotations

from typing import Any

from torch.fx._symbolic_trace import ProxyableClassMeta

from ....nn.core import (
    ConvAlgo,
    ImplicitGemmIndiceData,
    IndiceData,
    ThrustSortAllocator,
    expand_nd,
    scatter_nd,
)
from ....tensor import SparseConvTensor as _SparseConvTensor
from ..tools import CUDAKernelTimer

__all__ = [
    "CUDAKernelTimer",
    "ConvAlgo",
    "ImplicitGemmIndiceData",
    "IndiceData",
    "SparseConvTensor",
    "ThrustSortAllocator",
    "expand_nd",
    "scatter_nd",
]


class SparseConvTensor(_SparseConvTensor, metaclass=ProxyableClassMeta):
    """As spconv has it: indices may repeat (the lowest row answers); the first layer checks that
    they lie in the grid. `torch.fx` traces over it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("check", False)
        super().__init__(*args, **kwargs)
        self._trusted = False
        self._timer = CUDAKernelTimer(kwargs.get("enable_timer", False))
