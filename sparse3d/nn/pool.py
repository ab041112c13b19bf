"""Pooling layers with spconv's names and key rules; the maximum is the true one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from .. import _check
from ..geometry import Geometry, normalize, output_shape, submanifold_padding
from ..kernel_map import Coordinates, KernelMap
from ..ops.pool import max_pool, mean_pool, sum_pool
from ..ops.segment import reduce_segments
from ..tensor import SparseConvTensor
from ._layer import SitesLayer
from ._room import refuse_room
from .core import ConvAlgo
from .modules import SparseModule

__all__ = [
    "ALL_POOL_LAYERS",
    "SparseAvgPool",
    "SparseAvgPool1d",
    "SparseAvgPool2d",
    "SparseAvgPool3d",
    "SparseAvgPool4d",
    "SparseGlobalAvgPool",
    "SparseGlobalMaxOrAvgPool",
    "SparseGlobalMaxPool",
    "SparseGlobalSumPool",
    "SparseMaxPool",
    "SparseMaxPool1d",
    "SparseMaxPool2d",
    "SparseMaxPool3d",
    "SparseMaxPool4d",
    "SparseSumPool",
]

Size = int | Sequence[int]
RULES = ("footprint", "floor")


class _Pool(SitesLayer):
    def __init__(
        self,
        ndim: int,
        kernel_size: Size = 3,
        stride: Size | None = 1,
        padding: Size = 0,
        dilation: Size = 1,
        indice_key: str | None = None,
        subm: bool = False,
        algo: ConvAlgo | None = None,
        record_voxel_count: bool = False,
        name: str | None = None,
        *,
        rule: str = "footprint",
    ) -> None:
        super().__init__(name=name)
        self.ndim = ndim
        self.kernel_size = list(normalize("kernel_size", kernel_size, ndim, 1))
        steps = self.kernel_size if stride is None else stride
        self.stride = list(normalize("stride", steps, ndim, 1))
        self.padding = list(normalize("padding", padding, ndim, 0))
        self.dilation = list(normalize("dilation", dilation, ndim, 1))
        self.indice_key = indice_key
        self.subm = subm
        self.algo = ConvAlgo.Native if algo is None else algo
        self.rule = rule
        self.record_voxel_count = record_voxel_count
        if rule not in RULES:
            _check.fail(f"{self._label()}: rule", f"one of {RULES}", repr(rule))
        if record_voxel_count and not subm:
            self._count_voxels(None)

    @property
    def geometry(self) -> Geometry:
        if self.subm:
            padding = submanifold_padding(self.kernel_size, self.dilation)
            ones = (1,) * self.ndim
            return Geometry(tuple(self.kernel_size), ones, padding, tuple(self.dilation))
        return Geometry(
            tuple(self.kernel_size), tuple(self.stride), tuple(self.padding), tuple(self.dilation)
        )

    def extra_repr(self) -> str:
        return f"{self.geometry}, indice_key={self.indice_key!r}"

    def _pool(self, features: torch.Tensor, pairs: KernelMap) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, input: SparseConvTensor) -> SparseConvTensor:
        """Pool; the output sites and their order are those of a conv of equal geometry."""
        self._check_input(input)
        sites = input.sites(self._label())
        refuse_room(sites, self._label())
        kept = input.find_indice_pair(self.indice_key)
        if kept is not None and not (self.subm and kept.is_subm):
            _check.fail(
                f"{self._label()}: indice_key {self.indice_key!r}",
                f"new for a pool with {self.geometry}",
                f"one used by a layer with {kept.geometry}",
                "give this pool a key of its own",
            )
        pairs, target = self._map(sites)
        indice_dict = input.indice_dict
        if self.indice_key is not None:
            data = self._leave(pairs, sites, target)
            indice_dict = {**indice_dict, self.indice_key: data}
        self._record(pairs.num_out)
        return input.on_sites(self._pool(input.features, pairs), target, indice_dict)

    def _map(self, sites: Coordinates) -> tuple[KernelMap, Coordinates]:
        if self.subm:
            return sites.submanifold(self.kernel_size, self.dilation), sites
        shape, grid = sites.spatial_shape, None
        if shape is not None:
            if self.rule == "floor":
                grid = tuple(-(-n // s) for n, s in zip(shape, self.stride, strict=True))
            else:
                grid = output_shape(shape, self.geometry)
            _check.grid(self._label(), grid, shape)
        if self.rule == "floor":
            return sites.floor(self.geometry, grid)
        return sites.footprint(self.geometry, grid)


class SparseMaxPool(_Pool):
    """Maximum over the active inputs of each window, over `ndim` axes.

    Args:
        ndim: spatial axes D.
        kernel_size: one integer, or one an axis.
        stride: likewise; None means `kernel_size`.
        padding: likewise.
        dilation: likewise.
        indice_key: name under which the map is kept for an inverse layer.
        subm: outputs are the inputs.
        algo: accepted for spconv's signature.
        record_voxel_count: keep the largest output row count of training in a buffer.
        name: shown in error messages.
        rule: "footprint" (spconv) or "floor" (MinkowskiEngine).
        floor_at_zero: start from 0 as spconv 2.3.8 does.
        ties: of equal maxima the "first" takes the gradient, or "all" do as in spconv.
    """

    def __init__(
        self, *args: Any, floor_at_zero: bool = False, ties: str = "first", **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.floor_at_zero = floor_at_zero
        self.ties = ties

    def _pool(self, features: torch.Tensor, pairs: KernelMap) -> torch.Tensor:
        return max_pool(features, pairs, floor_at_zero=self.floor_at_zero, ties=self.ties)


class SparseAvgPool(_Pool):
    """Mean over the active inputs of each window; arguments as `SparseMaxPool`."""

    def _pool(self, features: torch.Tensor, pairs: KernelMap) -> torch.Tensor:
        return mean_pool(features, pairs)


class SparseSumPool(_Pool):
    """Sum over the active inputs of each window; arguments as `SparseMaxPool`."""

    def _pool(self, features: torch.Tensor, pairs: KernelMap) -> torch.Tensor:
        return sum_pool(features, pairs)


class _MaxPool(SparseMaxPool):
    axes: ClassVar[int]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        record_voxel_count: bool = False,
        name: str | None = None,
        *,
        rule: str = "footprint",
        floor_at_zero: bool = False,
        ties: str = "first",
    ) -> None:
        super().__init__(
            self.axes,
            kernel_size,
            stride,
            padding,
            dilation,
            indice_key,
            algo=algo,
            record_voxel_count=record_voxel_count,
            name=name,
            rule=rule,
            floor_at_zero=floor_at_zero,
            ties=ties,
        )


class _AvgPool(SparseAvgPool):
    axes: ClassVar[int]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        indice_key: str | None = None,
        algo: ConvAlgo | None = None,
        record_voxel_count: bool = False,
        name: str | None = None,
        *,
        rule: str = "footprint",
    ) -> None:
        super().__init__(
            self.axes,
            kernel_size,
            stride,
            padding,
            dilation,
            indice_key,
            algo=algo,
            record_voxel_count=record_voxel_count,
            name=name,
            rule=rule,
        )


class SparseMaxPool1d(_MaxPool):
    """Maximum pooling over 1 axis; stride defaults to the kernel size."""

    axes = 1


class SparseMaxPool2d(_MaxPool):
    """Maximum pooling over 2 axes; stride defaults to the kernel size."""

    axes = 2


class SparseMaxPool3d(_MaxPool):
    """Maximum pooling over 3 axes; stride defaults to the kernel size."""

    axes = 3


class SparseMaxPool4d(_MaxPool):
    """Maximum pooling over 4 axes; stride defaults to the kernel size."""

    axes = 4


class SparseAvgPool1d(_AvgPool):
    """Mean pooling over 1 axis; stride defaults to the kernel size."""

    axes = 1


class SparseAvgPool2d(_AvgPool):
    """Mean pooling over 2 axes; stride defaults to the kernel size."""

    axes = 2


class SparseAvgPool3d(_AvgPool):
    """Mean pooling over 3 axes; stride defaults to the kernel size."""

    axes = 3


class SparseAvgPool4d(_AvgPool):
    """Mean pooling over 4 axes; stride defaults to the kernel size."""

    axes = 4


class _GlobalPool(SparseModule):
    reduce: str

    def forward(self, input: SparseConvTensor) -> torch.Tensor:
        """[B, C]: one row a sample, 0 for a sample without sites."""
        sites = input.sites(type(self).__name__)
        refuse_room(sites, type(self).__name__)
        batch = sites.indices[:, 0].long()
        return reduce_segments(input.features, batch, input.batch_size, self.reduce)


class SparseGlobalMaxOrAvgPool(_GlobalPool):
    """Mean or maximum over each sample's sites.

    Args:
        is_mean: mean, else maximum.
        name: shown in error messages.
    """

    def __init__(self, is_mean: bool, name: str | None = None) -> None:
        super().__init__(name=name)
        self.is_mean = is_mean
        self.reduce = "mean" if is_mean else "max"


class SparseGlobalMaxPool(_GlobalPool):
    """Maximum over each sample's sites."""

    reduce = "max"


class SparseGlobalAvgPool(_GlobalPool):
    """Mean over each sample's sites."""

    reduce = "mean"


class SparseGlobalSumPool(_GlobalPool):
    """Sum over each sample's sites."""

    reduce = "sum"


ALL_POOL_LAYERS = (SparseMaxPool, SparseAvgPool, SparseGlobalMaxPool, SparseGlobalAvgPool)
