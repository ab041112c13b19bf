"""Layers on feature rows with the signatures of the peer's compiled half, for third-party layers
that call it through `get_minkowski_function`.

The backward functions are torch's gradients of the forward ones. The second thing that the pools'
forward functions give, and their backward functions take, is the number of rows that met in each
output row, float [M]; the peer's are private to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....nn.functional import input_gradients
from ....ops.coordinates import lookup
from ....ops.segment import segment_max, sparse_product, spread_segments, sum_by_channel
from ..MinkowskiBroadcast import MinkowskiBroadcastFunction
from ..MinkowskiConvolution import (
    MinkowskiConvolutionFunction,
    MinkowskiConvolutionTransposeFunction,
)
from ..MinkowskiInterpolation import MinkowskiInterpolationFunction
from ..MinkowskiKernelGenerator import KernelGenerator
from ..MinkowskiPooling import (
    MinkowskiGlobalPoolingFunction,
    MinkowskiLocalPoolingFunction,
    MinkowskiLocalPoolingTransposeFunction,
)
from ..MinkowskiPruning import MinkowskiPruningFunction
from ._C import BroadcastMode, ConvolutionMode, CoordinateMapKey, PoolingMode, RegionType
from ._manager import manager_of

__all__ = [
    "BroadcastBackward",
    "BroadcastForward",
    "ConvolutionBackward",
    "ConvolutionForward",
    "ConvolutionTransposeBackward",
    "ConvolutionTransposeForward",
    "GlobalPoolingBackward",
    "GlobalPoolingForward",
    "InterpolationBackward",
    "InterpolationForward",
    "LocalPoolingBackward",
    "LocalPoolingForward",
    "LocalPoolingTransposeBackward",
    "LocalPoolingTransposeForward",
    "PruningBackward",
    "PruningForward",
    "direct_max_pool_bw",
    "direct_max_pool_fw",
]

Key = CoordinateMapKey
Sizes = Sequence[int]
Tensors = tuple[torch.Tensor, ...]


def _kernel(
    size: Sizes,
    stride: Sizes,
    dilation: Sizes,
    region_type: RegionType,
    offset: torch.Tensor | None,
    expand_coordinates: bool = False,
) -> KernelGenerator:
    return KernelGenerator(
        list(size),
        list(stride),
        list(dilation),
        region_type=region_type,
        region_offsets=offset if region_type == RegionType.CUSTOM else None,
        expand_coordinates=expand_coordinates,
        dimension=len(size),
    )


def _convolution(function: Any, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(
        in_feat: torch.Tensor,
        kernel: torch.Tensor,
        size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        region_type: RegionType,
        offset: torch.Tensor,
        expand_coordinates: bool,
        mode: ConvolutionMode,
        in_key: Key,
        out_key: Key,
        manager: Any,
    ) -> torch.Tensor:
        """Rows at `out_key`, which is set where it was not."""
        shape = _kernel(size, stride, dilation, region_type, offset, expand_coordinates)
        with torch.no_grad():
            made: torch.Tensor = function.apply(
                in_feat, kernel, shape, mode, in_key, out_key, manager_of(manager)
            )
        return made

    def backward(
        in_feat: torch.Tensor,
        grad_out: torch.Tensor,
        kernel: torch.Tensor,
        size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        region_type: RegionType,
        offset: torch.Tensor,
        mode: ConvolutionMode,
        in_key: Key,
        out_key: Key,
        manager: Any,
    ) -> Tensors:
        """Gradients of the rows and of the kernel."""
        more = (_kernel(size, stride, dilation, region_type, offset), mode, in_key, out_key)
        return input_gradients(
            lambda rows, weights: function.apply(rows, weights, *more, manager_of(manager)),
            *(grad_out, in_feat, kernel),
        )

    forward.__name__, backward.__name__ = f"{name}Forward", f"{name}Backward"
    return forward, backward


ConvolutionForward, ConvolutionBackward = _convolution(MinkowskiConvolutionFunction, "Convolution")
ConvolutionTransposeForward, ConvolutionTransposeBackward = _convolution(
    MinkowskiConvolutionTransposeFunction, "ConvolutionTranspose"
)


def _counted(function: Any, in_feat: torch.Tensor, *more: Any) -> Tensors:
    with torch.no_grad():
        out = function.apply(in_feat, *more)
        ones = in_feat.new_ones((len(in_feat), 1))
        kind = PoolingMode.LOCAL_SUM_POOLING
        if function is MinkowskiGlobalPoolingFunction:
            kind = PoolingMode.GLOBAL_SUM_POOLING_DEFAULT
        return out, function.apply(ones, kind, *more[1:])[:, 0]


def _local_pooling(
    function: Any, name: str, expands: bool
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def forward(
        in_feat: torch.Tensor,
        size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        region_type: RegionType,
        offset: torch.Tensor,
        *more: Any,
    ) -> Tensors:
        """Rows at `out_key`, which is set where it was not, and how many met in each.

        What follows is `expand_coordinates` (of the transposed pool alone), mode, `in_key`,
        `out_key` and manager.
        """
        expand, mode, in_key, out_key, manager = more if expands else (False, *more)
        shape = _kernel(size, stride, dilation, region_type, offset, expand)
        return _counted(function, in_feat, mode, shape, in_key, out_key, manager_of(manager))

    def backward(
        in_feat: torch.Tensor,
        grad_out: torch.Tensor,
        num_nonzero: torch.Tensor,
        size: Sizes,
        stride: Sizes,
        dilation: Sizes,
        region_type: RegionType,
        offset: torch.Tensor,
        mode: PoolingMode,
        in_key: Key,
        out_key: Key,
        manager: Any,
    ) -> torch.Tensor:
        """Gradient of the rows."""
        shape = _kernel(size, stride, dilation, region_type, offset)
        more = (mode, shape, in_key, out_key, manager_of(manager))
        return input_gradients(lambda rows: function.apply(rows, *more), grad_out, in_feat)[0]

    forward.__name__, backward.__name__ = f"{name}Forward", f"{name}Backward"
    return forward, backward


LocalPoolingForward, LocalPoolingBackward = _local_pooling(
    MinkowskiLocalPoolingFunction, "LocalPooling", False
)
LocalPoolingTransposeForward, LocalPoolingTransposeBackward = _local_pooling(
    MinkowskiLocalPoolingTransposeFunction, "LocalPoolingTranspose", True
)


def GlobalPoolingForward(
    in_feat: torch.Tensor, mode: PoolingMode, in_key: Key, out_key: Key, manager: Any
) -> Tensors:
    """A row for each sample, and how many rows it has."""
    more = (mode, in_key, out_key, manager_of(manager))
    return _counted(MinkowskiGlobalPoolingFunction, in_feat, *more)


def GlobalPoolingBackward(
    in_feat: torch.Tensor,
    grad_out: torch.Tensor,
    num_nonzero: torch.Tensor,
    mode: PoolingMode,
    in_key: Key,
    out_key: Key,
    manager: Any,
) -> torch.Tensor:
    """Gradient of the rows."""
    more = (mode, in_key, out_key, manager_of(manager))
    apply = MinkowskiGlobalPoolingFunction.apply
    return input_gradients(lambda rows: apply(rows, *more), grad_out, in_feat)[0]


def BroadcastForward(
    in_feat: torch.Tensor,
    in_feat_glob: torch.Tensor,
    mode: BroadcastMode,
    in_key: Key,
    glob_key: Key,
    manager: Any,
) -> torch.Tensor:
    """Sum or product of each row with its sample's."""
    more = (mode, in_key, glob_key, manager_of(manager))
    with torch.no_grad():
        return MinkowskiBroadcastFunction.apply(in_feat, in_feat_glob, *more)


def BroadcastBackward(
    in_feat: torch.Tensor,
    in_feat_glob: torch.Tensor,
    grad_out: torch.Tensor,
    mode: BroadcastMode,
    in_key: Key,
    glob_key: Key,
    manager: Any,
) -> Tensors:
    """Gradients of the rows and of the samples' rows."""
    more = (mode, in_key, glob_key, manager_of(manager))
    apply = MinkowskiBroadcastFunction.apply
    return input_gradients(lambda a, b: apply(a, b, *more), grad_out, in_feat, in_feat_glob)


def PruningForward(
    in_feat: torch.Tensor, keep: torch.Tensor, in_key: Key, out_key: Key, manager: Any
) -> torch.Tensor:
    """Rows where the mask is true; sets `out_key`."""
    with torch.no_grad():
        return MinkowskiPruningFunction.apply(in_feat, keep, in_key, out_key, manager_of(manager))


def PruningBackward(
    grad_out: torch.Tensor, in_key: Key, out_key: Key, manager: Any
) -> torch.Tensor:
    """Gradient of the rows: 0 where none was kept."""
    sets = manager_of(manager)
    kept = sets.sites(out_key)
    return spread_segments(
        grad_out, lookup(kept.indices, kept.table(), sets.sites(in_key).indices).long()
    )


def InterpolationForward(
    in_feat: torch.Tensor, samples: torch.Tensor, in_key: Key, manager: Any
) -> list[torch.Tensor]:
    """Rows at the samples, then input rows, sample rows and weights."""
    with torch.no_grad():
        made = MinkowskiInterpolationFunction.apply(in_feat, samples, in_key, manager_of(manager))
    return list(made)


def InterpolationBackward(
    grad_out: torch.Tensor,
    in_map: torch.Tensor,
    out_map: torch.Tensor,
    weights: torch.Tensor,
    in_key: Key,
    manager: Any,
) -> torch.Tensor:
    """Gradient of the rows."""
    size = manager_of(manager).size(in_key)
    return sparse_product(in_map.long(), out_map.long(), weights, size, grad_out)


def direct_max_pool_fw(
    in_map: torch.Tensor,
    out_map: torch.Tensor,
    in_feat: torch.Tensor,
    out_nrows: int,
    is_sorted: bool,
) -> Tensors:
    """Maximum over listed pairs, and the input row of each, int64 [M, C], -1 where there is
    none."""
    rows = in_map.long()
    out, pair = segment_max(in_feat.detach()[rows].contiguous(), out_map.long(), int(out_nrows))
    found = pair >= 0
    return out, torch.where(found, rows[pair.clamp(min=0).long()], -1)


def direct_max_pool_bw(
    grad_out: torch.Tensor, max_map: torch.Tensor, in_nrows: int
) -> torch.Tensor:
    """Gradient of the input rows."""
    return sum_by_channel(grad_out, max_map.long(), int(in_nrows))
