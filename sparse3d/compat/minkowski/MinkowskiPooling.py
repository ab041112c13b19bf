"""Pooling, unpooling and global pooling."""

from __future__ import annotations

from typing import Any

import torch

from ... import _check
from ...ops.pool import max_pool, mean_pool, sum_pool
from ...ops.segment import reduce_segments
from ._backend._C import CoordinateMapKey, PoolingMode
from .MinkowskiCommon import MinkowskiModuleBase, StrideType
from .MinkowskiConvolution import Where, check_input, stride_after
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiKernelGenerator import KernelGenerator
from .MinkowskiSparseTensor import SparseTensor, _get_coordinate_map_key
from .MinkowskiTensorField import TensorField

__all__ = [
    "MinkowskiAvgPooling",
    "MinkowskiDirectMaxPoolingFunction",
    "MinkowskiGlobalAvgPooling",
    "MinkowskiGlobalMaxPooling",
    "MinkowskiGlobalPooling",
    "MinkowskiGlobalPoolingFunction",
    "MinkowskiGlobalSumPooling",
    "MinkowskiLocalPoolingFunction",
    "MinkowskiLocalPoolingTransposeFunction",
    "MinkowskiMaxPooling",
    "MinkowskiPoolingBase",
    "MinkowskiPoolingTranspose",
    "MinkowskiSumPooling",
]

POOLS = {
    PoolingMode.LOCAL_SUM_POOLING: sum_pool,
    PoolingMode.LOCAL_AVG_POOLING: mean_pool,
    PoolingMode.LOCAL_MAX_POOLING: max_pool,
}


def _fills_cells(kernel: KernelGenerator) -> bool:
    """A kernel that is its stride pools whole cells, odd ones too."""
    return kernel.kernel_size == kernel.kernel_stride


class MinkowskiLocalPoolingFunction:
    """`apply` pools feature rows."""

    @staticmethod
    def apply(
        input_features: torch.Tensor,
        pooling_mode: PoolingMode,
        kernel_generator: KernelGenerator,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        """Rows at `out_coordinate_map_key`, which is set where it was not."""
        assert coordinate_manager is not None
        key = out_coordinate_map_key or CoordinateMapKey(
            in_coordinate_map_key.get_coordinate_size()
        )
        if not key.is_key_set():
            key.set_key(coordinate_manager.out_key(in_coordinate_map_key, kernel_generator))
        pairs = coordinate_manager.pairs(
            in_coordinate_map_key, key, kernel_generator, as_cell=_fills_cells(kernel_generator)
        )
        return POOLS[pooling_mode](input_features, pairs)


class MinkowskiLocalPoolingTransposeFunction:
    """`apply` spreads feature rows back; several that meet are added."""

    @staticmethod
    def apply(
        input_features: torch.Tensor,
        pooling_mode: PoolingMode,
        kernel_generator: KernelGenerator,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        """Rows at `out_coordinate_map_key`, which is set where it was not."""
        assert coordinate_manager is not None
        key = out_coordinate_map_key or CoordinateMapKey(
            in_coordinate_map_key.get_coordinate_size()
        )
        if not key.is_key_set():
            find = coordinate_manager.out_key_transposed
            key.set_key(find(in_coordinate_map_key, kernel_generator))
        pairs = coordinate_manager.pairs(
            in_coordinate_map_key,
            key,
            kernel_generator,
            transposed=True,
            as_cell=_fills_cells(kernel_generator),
        )
        return sum_pool(input_features, pairs)


class MinkowskiPoolingBase(MinkowskiModuleBase):
    """Every local pool.

    Args:
        kernel_size: one integer, or one an axis.
        stride: likewise.
        dilation: likewise.
        kernel_generator: shape and step, instead of the three above.
        is_transpose: from coarse to fine.
        pooling_mode: sum, mean or maximum.
        dimension: spatial axes D.
    """

    def __init__(
        self,
        kernel_size: StrideType,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        is_transpose: bool = False,
        pooling_mode: PoolingMode = PoolingMode.LOCAL_AVG_POOLING,
        dimension: int | None = -1,
    ) -> None:
        super().__init__()
        if dimension is None or dimension < 1:
            _check.fail("dimension", "> 0", dimension)
        if kernel_generator is None:
            kernel_generator = KernelGenerator(
                kernel_size=kernel_size, stride=stride, dilation=dilation, dimension=dimension
            )
        self.is_transpose = is_transpose
        self.kernel_generator = kernel_generator
        self.pooling_mode = pooling_mode
        self.dimension = dimension
        self.pooling: Any = MinkowskiLocalPoolingFunction()

    def forward(self, input: SparseTensor, coordinates: Where = None) -> SparseTensor:
        """Pool; `coordinates` as in `MinkowskiConvolution`."""
        check_input(type(self).__name__, input, self.dimension)
        stride = stride_after(input, self.kernel_generator, self.is_transpose)
        key = _get_coordinate_map_key(input, coordinates, stride)
        out = self.pooling.apply(
            input.F,
            self.pooling_mode,
            self.kernel_generator,
            input.coordinate_map_key,
            key,
            input._manager,
        )
        return SparseTensor(out, coordinate_map_key=key, coordinate_manager=input._manager)

    def __repr__(self) -> str:
        kernel = self.kernel_generator
        return (
            f"{type(self).__name__}(kernel_size={kernel.kernel_size}, "
            f"stride={kernel.kernel_stride}, dilation={kernel.kernel_dilation})"
        )


class MinkowskiAvgPooling(MinkowskiPoolingBase):
    """Mean over the sites present."""

    def __init__(
        self,
        kernel_size: StrideType = -1,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        dimension: int | None = None,
    ) -> None:
        mode = PoolingMode.LOCAL_AVG_POOLING
        super().__init__(kernel_size, stride, dilation, kernel_generator, False, mode, dimension)


class MinkowskiSumPooling(MinkowskiPoolingBase):
    """Sum over the sites present."""

    def __init__(
        self,
        kernel_size: StrideType,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        dimension: int | None = None,
    ) -> None:
        mode = PoolingMode.LOCAL_SUM_POOLING
        super().__init__(kernel_size, stride, dilation, kernel_generator, False, mode, dimension)


class MinkowskiMaxPooling(MinkowskiPoolingBase):
    """Maximum over the sites present."""

    def __init__(
        self,
        kernel_size: StrideType,
        stride: StrideType = 1,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        dimension: int | None = None,
    ) -> None:
        mode = PoolingMode.LOCAL_MAX_POOLING
        super().__init__(kernel_size, stride, dilation, kernel_generator, False, mode, dimension)


class MinkowskiPoolingTranspose(MinkowskiPoolingBase):
    """Unpooling: each finer site takes the sum of the coarse ones that reach it."""

    def __init__(
        self,
        kernel_size: StrideType,
        stride: StrideType,
        dilation: StrideType = 1,
        kernel_generator: KernelGenerator | None = None,
        expand_coordinates: bool = False,
        dimension: int | None = None,
    ) -> None:
        if kernel_generator is None:
            kernel_generator = KernelGenerator(
                kernel_size=kernel_size,
                stride=stride,
                dilation=dilation,
                expand_coordinates=expand_coordinates,
                dimension=-1 if dimension is None else dimension,
            )
        super().__init__(kernel_size, stride, dilation, kernel_generator, True, dimension=dimension)
        self.pooling = MinkowskiLocalPoolingTransposeFunction()


def _reduction(mode: PoolingMode) -> str:
    return {"SUM": "sum", "AVG": "mean", "MAX": "max"}[mode.name.split("_")[1]]


class MinkowskiGlobalPoolingFunction:
    """`apply` makes one row for each sample."""

    @staticmethod
    def apply(
        input_features: torch.Tensor,
        pooling_mode: PoolingMode,
        in_coordinate_map_key: CoordinateMapKey,
        out_coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
    ) -> torch.Tensor:
        """Rows at the origin key, to which `out_coordinate_map_key` is set."""
        assert coordinate_manager is not None
        origin = coordinate_manager.origin()
        if out_coordinate_map_key is not None and not out_coordinate_map_key.is_key_set():
            out_coordinate_map_key.set_key(origin)
        rows = coordinate_manager.batch_rows(in_coordinate_map_key, len(input_features))
        size = coordinate_manager.size(origin)
        return reduce_segments(input_features, rows, size, _reduction(pooling_mode))


class MinkowskiGlobalPooling(MinkowskiModuleBase):
    """One row for each sample, at the origin.

    Args:
        mode: sum, mean or maximum.
        dimension: accepted; 0.4's, which networks published then still name.
    """

    def __init__(
        self,
        mode: PoolingMode = PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX,
        dimension: int = -1,
    ) -> None:
        super().__init__()
        if not isinstance(mode, PoolingMode):
            _check.fail_type("mode", "a PoolingMode", type(mode).__name__)
        self.pooling_mode = mode
        self.pooling = MinkowskiGlobalPoolingFunction()

    def forward(self, input: SparseTensor | TensorField, coordinates: Where = None) -> SparseTensor:
        """Pool each sample."""
        manager = input.coordinate_manager
        origin = manager.origin()
        out = self.pooling.apply(input.F, self.pooling_mode, input._key(), origin, manager)
        return SparseTensor(out, coordinate_map_key=origin, coordinate_manager=manager)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mode={self.pooling_mode.name})"


class MinkowskiGlobalSumPooling(MinkowskiGlobalPooling):
    """Sum of each sample."""

    def __init__(
        self,
        mode: PoolingMode = PoolingMode.GLOBAL_SUM_POOLING_PYTORCH_INDEX,
        dimension: int = -1,
    ) -> None:
        super().__init__(mode)


class MinkowskiGlobalAvgPooling(MinkowskiGlobalPooling):
    """Mean of each sample."""

    def __init__(
        self,
        mode: PoolingMode = PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX,
        dimension: int = -1,
    ) -> None:
        super().__init__(mode)


class MinkowskiGlobalMaxPooling(MinkowskiGlobalPooling):
    """Maximum of each sample."""

    def __init__(
        self,
        mode: PoolingMode = PoolingMode.GLOBAL_MAX_POOLING_PYTORCH_INDEX,
        dimension: int = -1,
    ) -> None:
        super().__init__(mode)


class MinkowskiDirectMaxPoolingFunction:
    """`apply` takes the maximum over listed pairs."""

    @staticmethod
    def apply(
        in_map: torch.Tensor,
        out_map: torch.Tensor,
        in_feat: torch.Tensor,
        out_nrows: int,
        is_sorted: bool = False,
    ) -> torch.Tensor:
        """Row `out_map[i]` is at least `in_feat[in_map[i]]`."""
        return reduce_segments(in_feat[in_map.long()], out_map.long(), int(out_nrows), "max")
