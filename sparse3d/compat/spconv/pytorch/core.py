"""`spconv.pytorch.core`."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Proxy

from .... import _check
from ....nn.core import ConvAlgo, ThrustSortAllocator, expand_nd, scatter_nd
from ....ops.rows import combine_rows
from ....tensor import SparseConvTensor as _SparseConvTensor
from ..tools import CUDAKernelTimer
from ._indice_data import ImplicitGemmIndiceData, IndiceData

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
    they lie in the grid. Features may be of any dtype, labels say; layers take floating ones. Sums
    of tensors of as many rows are row by row. `torch.fx` traces over it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("check", False)
        super().__init__(*args, **kwargs)
        self._trusted = False
        self._timer = CUDAKernelTimer(kwargs.get("enable_timer", False))

    @staticmethod
    def _checked(name: str, value: Any) -> torch.Tensor:
        return _check.tensor(name, value, 2)

    def dense(self, channels_first: bool = True) -> torch.Tensor:
        """Dense grid [B, C, *spatial_shape], or [B, *spatial_shape, C]; 0 where no site is."""
        if self.features.is_floating_point() or self.spatial_shape is None:
            return super().dense(channels_first)
        shape = [self.batch_size, *self.spatial_shape, self.features.shape[1]]
        grid = scatter_nd(self.indices, self.features, shape)
        return grid.movedim(-1, 1).contiguous() if channels_first else grid

    def __add__(self, other: object) -> _SparseConvTensor:
        if isinstance(other, _SparseConvTensor) and len(other.features) == len(self.features):
            return self.replace_feature(combine_rows("add", self.features, other.features))
        return super().__add__(other)
