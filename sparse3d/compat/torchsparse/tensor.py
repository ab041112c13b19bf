"""`SparseTensor` and `PointTensor`."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch

from ... import _check
from ...kernel_map import Coordinates, KernelMap, edit_count, with_edit_count
from ...ops.dense import to_dense
from ...ops.lattice import batch_count
from ...ops.rows import combine_rows
from .utils.tensor_cache import cache_for
from .utils.utils import make_ntuple

__all__ = [
    "PointTensor",
    "SparseTensor",
    "get_allow_negative_coordinates",
    "set_allow_negative_coordinates",
]

T = TypeVar("T", bound="SparseTensor")
Triple = tuple[int, int, int]


class _Global:
    """The peer's interface keeps this for the whole process."""

    allow_negative = False


def get_allow_negative_coordinates() -> bool:
    """Whether strided layers make sites at negative coordinates."""
    return _Global.allow_negative


def set_allow_negative_coordinates(allow_negative_coordinates: bool) -> None:
    """Let strided layers make sites at negative coordinates."""
    _Global.allow_negative = bool(allow_negative_coordinates)


class SparseTensor:
    """Features on sparse coordinates, torchsparse 2.x: (batch, x, y, z), divided by the stride.

    Args:
        feats: [N, C].
        coords: int32 [N, 4].
        stride: of the coordinates.
        spatial_range: (B, X, Y, Z), or None.
    """

    batch_column: ClassVar[int] = 0
    contracted: ClassVar[bool] = True
    version: ClassVar[str] = "2.1"
    floors: ClassVar[bool] = False
    """Strided layers make `floor(c / s)`, whatever the kernel: torchsparse before 1.4."""

    def __init__(
        self,
        feats: Any,
        coords: Any,
        stride: int | tuple[int, ...] = 1,
        spatial_range: tuple[int, ...] | None = None,
    ) -> None:
        self.feats = feats
        self.coords = with_edit_count(coords) if isinstance(coords, torch.Tensor) else coords
        self.stride = make_ntuple(stride, ndim=3)
        self.spatial_range = spatial_range
        self._caches = cache_for(self)

    @property
    def F(self) -> Any:
        return self.feats

    @F.setter
    def F(self, feats: Any) -> None:
        self.feats = feats

    @property
    def C(self) -> Any:
        return self.coords

    @C.setter
    def C(self, coords: Any) -> None:
        self.coords = coords

    @property
    def s(self) -> tuple[int, ...]:
        return self.stride

    @s.setter
    def s(self, stride: int | tuple[int, ...]) -> None:
        self.stride = make_ntuple(stride, ndim=3)

    @property
    def cmaps(self) -> dict[Any, Any]:
        return self._caches.cmaps

    @cmaps.setter
    def cmaps(self, value: dict[Any, Any]) -> None:
        self._caches.cmaps = value

    @property
    def kmaps(self) -> dict[Any, Any]:
        return self._caches.kmaps

    @kmaps.setter
    def kmaps(self, value: dict[Any, Any]) -> None:
        self._caches.kmaps = value

    def __len__(self) -> int:
        return len(self.feats)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(feats={list(self.feats.shape)}, stride={self.stride}, "
            f"spatial_range={self.spatial_range})"
        )

    # The peer's methods change the tensor and give it back.

    def to(self: T, device: Any, non_blocking: bool = True) -> T:
        self.coords = self.coords.to(device, non_blocking=non_blocking)
        self.feats = self.feats.to(device, non_blocking=non_blocking)
        return self

    def cpu(self: T) -> T:
        return self.to("cpu")

    def cuda(self: T) -> T:
        return self.to("cuda")

    def half(self: T) -> T:
        self.feats = self.feats.half()
        return self

    def detach(self: T) -> T:
        self.coords, self.feats = self.coords.detach(), self.feats.detach()
        return self

    def dense(self) -> torch.Tensor:
        """Dense grid [B, X, Y, Z, C].

        Raises:
            ValueError: if no range is stated.
        """
        if self.spatial_range is None:
            way_out = "construct the tensor with spatial_range=(B, X, Y, Z)"
            _check.fail("spatial_range", "stated for dense()", None, way_out)
        batch, *spatial = self.spatial_range[:4]
        return to_dense(self.feats, self.sites().indices, spatial, int(batch))

    def __add__(self: T, other: T) -> T:
        _check.same_rows("operand", len(other.feats), "the left one", len(self.feats))
        return self.like(combine_rows("add", self.feats, other.feats))

    # --------------------------------------------------------------- for the stand-in's layers

    def like(self: T, feats: torch.Tensor) -> T:
        """Other features on the same coordinates, caches shared."""
        made = type(self)(feats, self.coords, self.stride, self.spatial_range)
        made._caches = self._caches
        return made

    def sites(self) -> Coordinates:
        """The coordinates as a set in index space of the level, batch id first."""
        kept = self._caches.sites.get(self.stride)
        if kept is not None and kept[0] is self.coords and kept[1] == edit_count(self.coords):
            sites: Coordinates = kept[2]
            return sites
        coords = _check.narrowed("coords", _check.tensor("coords", self.coords, 2))
        indices = self.to_indices(coords, self.stride)
        made = Coordinates(indices, None, batch_count(indices))
        self._caches.sites[self.stride] = (self.coords, edit_count(self.coords), made)
        return made

    @classmethod
    def to_indices(cls, coords: torch.Tensor, stride: Triple | tuple[int, ...]) -> torch.Tensor:
        """The peer's coordinates as (batch, x, y, z) in units of the stride."""
        return coords

    @classmethod
    def from_indices(cls, indices: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
        """(batch, x, y, z) in units of the stride as the peer's coordinates."""
        return indices

    @classmethod
    def batch_of(cls, coords: torch.Tensor) -> torch.Tensor:
        """The batch column."""
        return coords[:, cls.batch_column]

    def on(
        self: T,
        feats: torch.Tensor,
        sites: Coordinates,
        stride: tuple[int, ...],
        spatial_range: tuple[int, ...] | None,
    ) -> T:
        """A layer's output; its coordinates are those kept for the stride where they are the same
        set."""
        kept = self._caches.sites.get(stride)
        if kept is not None and kept[2] is sites:
            coords = kept[0]
        else:
            coords = with_edit_count(self.from_indices(sites.indices, stride))
            self._caches.sites[stride] = (coords, edit_count(coords), sites)
        made = type(self)(feats, coords, stride, spatial_range)
        made._caches = self._caches
        made._caches.cmaps.setdefault(stride, self._cmap(made))
        return made

    @staticmethod
    def _cmap(made: SparseTensor) -> Any:
        return made.coords, made.spatial_range


class Kept:
    """A kernel map, the sets it joins and the range it leads to."""

    def __init__(
        self,
        pairs: KernelMap,
        inputs: Coordinates,
        outputs: Coordinates,
        before: tuple[int, ...] | None,
        after: tuple[int, ...] | None,
    ) -> None:
        self.pairs, self.inputs, self.outputs = pairs, inputs, outputs
        self.before, self.after = before, after


class PointTensor:
    """Features at points.

    Args:
        feats: [N, C].
        coords: floating [N, 4].
        idx_query: rows of voxels by stride.
        weights: weights of voxels by stride.
    """

    def __init__(
        self,
        feats: torch.Tensor,
        coords: torch.Tensor,
        idx_query: dict[Any, Any] | None = None,
        weights: dict[Any, Any] | None = None,
    ) -> None:
        self.F = feats
        self.C = coords
        self.idx_query = {} if idx_query is None else idx_query
        self.weights = {} if weights is None else weights
        self.additional_features: dict[str, dict[Any, Any]] = {"idx_query": {}, "counts": {}}

    def to(self, device: Any, non_blocking: bool = True) -> PointTensor:
        self.F = self.F.to(device, non_blocking=non_blocking)
        self.C = self.C.to(device, non_blocking=non_blocking)
        return self

    def cuda(self) -> PointTensor:
        return self.to("cuda")

    def cpu(self) -> PointTensor:
        return self.to("cpu")

    def detach(self) -> PointTensor:
        self.F, self.C = self.F.detach(), self.C.detach()
        return self

    def __add__(self, other: PointTensor) -> PointTensor:
        made = type(self)(
            combine_rows("add", self.F, other.F), self.C, self.idx_query, self.weights
        )
        made.additional_features = self.additional_features
        return made
