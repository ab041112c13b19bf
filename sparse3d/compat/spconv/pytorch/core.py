"""`spconv.pytorch.core`."""

from __future__ import annotations

from typing import Any

from torch.fx import Proxy

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


class _Traceable(type):
    """Made from what `torch.fx` traces, a tensor is a node of the graph."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, Proxy):
                return value.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


class SparseConvTensor(_SparseConvTensor, metaclass=_Traceable):
    """As spconv has it: indices may repeat (the lowest row answers); the first layer checks that
    they lie in the grid. `torch.fx` traces over it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("check", False)
        super().__init__(*args, **kwargs)
        self._trusted = False
        self._timer = CUDAKernelTimer(kwargs.get("enable_timer", False))
