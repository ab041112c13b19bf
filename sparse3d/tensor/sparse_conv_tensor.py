"""`SparseConvTensor`: features on a set of sites, with spconv's surface and what its users miss."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from .. import _check
from ..kernel_map import Coordinates, edit_count, with_edit_count
from ..ops.dense import from_dense as rows_of_dense
from ..ops.dense import to_dense
from ..ops.segment import take_rows
from .indice_data import IndiceData, listed

_CARRIED = (
    "_indices",
    "_spatial_shape",
    "_batch_size",
    "_coordinates",
    "grid",
    "voxel_num",
    "benchmark",
    "benchmark_record",
    "thrust_allocator",
    "force_algo",
    "int8_scale",
    "_timer",
    "_trusted",
)
"""What a tensor with other features or sites takes over."""


class SparseConvTensor:
    """Feature rows on sparse sites of a batch of grids.

    Args:
        features: [N, C] floating.
        indices: int32 [N, 1 + D], D = 1..4: batch id, then positions in the axis order of
            `spatial_shape` (z, y, x by custom). int64 that fits is copied to int32.
        spatial_shape: grid, D integers; None means no grid, and negative positions are legal.
        batch_size: number of samples; empty ones are fine.
        grid: kept for spconv's signature.
        voxel_num: kept for spconv's signature.
        indice_dict: maps of earlier layers by `indice_key`.
        benchmark: kept for spconv's signature.
        permanent_thrust_allocator: kept for spconv's signature.
        enable_timer: kept for spconv's signature.
        force_algo: kept for spconv's signature.
        check: look the indices over once: inside grid and batch, distinct. The table that this
            builds serves the first layer. False skips it; the lowest of equal rows then answers.

    Raises:
        TypeError: if features are not floating or indices not int32.
        ValueError: if shapes do not fit, an index lies outside grid or batch (names column, value
            and limit), or two rows coincide (names both).

    Example:
        >>> indices = torch.tensor([[0, 0, 1, 2], [0, 3, 1, 2]], dtype=torch.int32)
        >>> SparseConvTensor(torch.ones(2, 4), indices, [8, 8, 8], batch_size=1)
        SparseConvTensor(features=[2, 4] float32 cpu, grid=[8, 8, 8], batch_size=1, density=0.39%)
    """

    def __init__(
        self,
        features: torch.Tensor,
        indices: torch.Tensor,
        spatial_shape: Sequence[int] | torch.Tensor | None,
        batch_size: int,
        grid: torch.Tensor | None = None,
        voxel_num: torch.Tensor | None = None,
        indice_dict: dict[str, IndiceData] | None = None,
        benchmark: bool = False,
        permanent_thrust_allocator: bool = False,
        enable_timer: bool = False,
        force_algo: object = None,
        *,
        check: bool = True,
    ) -> None:
        self._checked("features", features)
        indices = _int32(indices)
        _check.same_device(features=features, indices=indices)
        self._features = features
        self._indices = with_edit_count(indices)
        self._spatial_shape = _shape(spatial_shape, indices.shape[1] - 1)
        self._batch_size = _check.positive("batch_size", batch_size)
        self._coordinates: Coordinates | None = None
        self.indice_dict: dict[str, IndiceData] = {} if indice_dict is None else indice_dict
        self.grid = torch.empty(0, dtype=torch.int32) if grid is None else grid
        self.voxel_num = voxel_num
        self.benchmark = benchmark
        self.benchmark_record: dict[str, Any] = {}
        self.thrust_allocator: object = None
        self.force_algo = force_algo
        self.int8_scale: object = None
        self._timer: object = None
        self._trusted = not check
        if check and not torch.compiler.is_compiling():
            way_out = "give one feature row an index row"
            _check.same_rows("features", len(features), "indices", len(indices), way_out)
            self.coordinates.check()
            self._trusted = True

    @staticmethod
    def _checked(name: str, value: Any) -> torch.Tensor:
        """Feature rows as they may be held."""
        return _check.features(name, value)

    @property
    def features(self) -> torch.Tensor:
        """Feature rows [N, C]; replaced with `replace_feature`, never assigned."""
        return self._features

    @features.setter
    def features(self, value: torch.Tensor) -> None:
        raise ValueError(
            "features must be replaced with x = x.replace_feature(features), got an assignment"
        )

    @property
    def indices(self) -> torch.Tensor:
        """Sites int32 [N, 1 + D]. Assigning drops table and maps; edits in place are noticed."""
        return self._indices

    @indices.setter
    def indices(self, value: torch.Tensor) -> None:
        self._indices = with_edit_count(_int32(value))
        self._forget()

    @property
    def spatial_shape(self) -> list[int] | None:
        """Grid, one entry an axis, or None."""
        return self._spatial_shape

    @spatial_shape.setter
    def spatial_shape(self, value: Sequence[int] | None) -> None:
        self._spatial_shape = _shape(value, self._indices.shape[1] - 1)
        self._forget()

    @property
    def batch_size(self) -> int:
        """Number of samples."""
        return self._batch_size

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        self._batch_size = _check.positive("batch_size", value)
        self._forget()

    def _forget(self) -> None:
        self._coordinates = None
        self._trusted = False

    @property
    def coordinates(self) -> Coordinates:
        """The set of sites with its table and maps, shared by tensors on the same sites."""
        if self._coordinates is None:
            self._coordinates = Coordinates(self._indices, self._spatial_shape, self._batch_size)
        return self._coordinates

    def _known_sites(self) -> Coordinates | None:
        """The sites where they need no look: what `sites` returns then."""
        known = self._coordinates
        if known is None or not self._trusted or known._version != edit_count(known.indices):
            return None
        return known if self._features.shape[0] == self._indices.shape[0] else None

    def sites(self, layer: str) -> Coordinates:
        """The sites, checked for the layer that is about to read them.

        Raises:
            ValueError: if features and indices differ in rows, or an assigned index lies outside.
        """
        way_out = "call replace_feature and set indices with equal row counts before the layer"
        _check.same_rows(
            f"{layer}: features",
            self._features.shape[0],
            "indices",
            self._indices.shape[0],
            way_out,
        )
        if not torch.compiler.is_compiling() and not (
            self._trusted and self.coordinates.is_unchanged()
        ):
            _check.indices_in_grid(self._indices, self._spatial_shape, self._batch_size)
            self._trusted = True
        return self.coordinates

    @property
    def device(self) -> torch.device:
        return self._features.device

    @property
    def dtype(self) -> torch.dtype:
        return self._features.dtype

    @property
    def ndim(self) -> int:
        """Number of spatial axes D."""
        return self._indices.shape[1] - 1

    @property
    def spatial_size(self) -> int:
        """Number of cells of one grid.

        Raises:
            ValueError: if no grid is stated.
        """
        if self._spatial_shape is None:
            _check.fail("spatial_shape", "stated to count cells", None)
        return prod(self._spatial_shape)

    @property
    def is_quantized(self) -> bool:
        return self._features.dtype == torch.qint8

    def __len__(self) -> int:
        return self._indices.shape[0]

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        parts = [
            f"features={list(self._features.shape)} {dtype} {self.device}",
            f"grid={self._spatial_shape}",
            f"batch_size={self._batch_size}",
        ]
        if self._spatial_shape is not None:
            cells = self.spatial_size * self._batch_size
            parts.append(f"density={len(self) / cells:.2%}")
        if self.indice_dict:
            parts.append(f"keys={sorted(self.indice_dict)}")
        return f"SparseConvTensor({', '.join(parts)})"

    def _with(
        self,
        features: torch.Tensor,
        coordinates: Coordinates | None,
        indice_dict: dict[str, IndiceData],
    ) -> SparseConvTensor:
        """A tensor on trusted sites: a layer's output, or the same sites with other features."""
        made = object.__new__(type(self))
        if torch.compiler.is_compiling():  # not every Dynamo traces __dict__.update
            for name in _CARRIED:
                setattr(made, name, getattr(self, name))
        else:
            made.__dict__.update(self.__dict__)
        made._features = features
        made.indice_dict = indice_dict
        if coordinates is not None:
            made._indices = coordinates.indices
            made._spatial_shape = listed(coordinates.spatial_shape)
            made._batch_size = coordinates.batch_size
            made._coordinates = coordinates
            made._trusted = True
        return made

    def on_sites(
        self,
        features: torch.Tensor,
        coordinates: Coordinates,
        indice_dict: dict[str, IndiceData] | None = None,
    ) -> SparseConvTensor:
        """A layer's output: features [M, C] on the layer's sites, maps carried along."""
        kept = self.indice_dict if indice_dict is None else indice_dict
        if coordinates is self._coordinates and self._trusted:
            return self._with(features, None, kept)
        return self._with(features, coordinates, kept)

    def replace_feature(self, feature: torch.Tensor) -> SparseConvTensor:
        """Other features on the same sites; shares indices and `indice_dict`.

        The row count is checked by the layer that reads the tensor, as spconv's users replace
        features first and indices after.

        Args:
            feature: [N, C].
        """
        return self._with(self._checked("feature", feature), None, self.indice_dict)

    def shadow_copy(self) -> SparseConvTensor:
        """A new object with the same features, indices and maps."""
        return self._with(self._features, None, self.indice_dict)

    def find_indice_pair(self, key: str | None) -> IndiceData | None:
        """What the layer with this `indice_key` left, or None."""
        return None if key is None else self.indice_dict.get(key)

    def dense(self, channels_first: bool = True) -> torch.Tensor:
        """Dense grid [B, C, *spatial_shape], or [B, *spatial_shape, C]; 0 where no site is.

        Raises:
            ValueError: if no grid is stated or a site lies outside.
        """
        if self._spatial_shape is None:
            way_out = "construct the tensor with spatial_shape"
            _check.fail("spatial_shape", "stated for dense()", None, way_out)
        grid = to_dense(self._features, self._indices, self._spatial_shape, self._batch_size)
        return grid.movedim(-1, 1).contiguous() if channels_first else grid

    @classmethod
    def from_dense(cls, x: torch.Tensor) -> SparseConvTensor:
        """Sites where any channel is not zero, in row-major order.

        Args:
            x: [B, *spatial_shape, C], channels last as spconv has it.
        """
        _check.tensor("x", x)
        if not 3 <= x.ndim <= 6:
            _check.fail("x", "of shape [B, *spatial_shape, C] with 1 to 4 axes", list(x.shape))
        sites = (x != 0).any(-1).nonzero()
        rows = sites.int()
        features = rows_of_dense(x, rows)
        made = cls(features, rows, list(x.shape[1:-1]), x.shape[0], check=False)
        made.coordinates.trust_distinct()
        return made

    def select_by_index(self, valid_indices: torch.Tensor) -> SparseConvTensor:
        """The rows of an index list or a mask; maps of the full set are left behind.

        Args:
            valid_indices: int64 rows, or bool [N].
        """
        rows = valid_indices.to(self._indices.device)
        if rows.dtype == torch.bool:
            _check.same_rows("valid_indices", len(rows), "the tensor", len(self))
            rows = rows.nonzero()[:, 0]
        rows = torch.where(rows < 0, rows + len(self), rows).long()
        made = self._with(take_rows(self._features, rows), None, {})
        made.indices = self._indices[rows]
        return made

    def coalesce(self, reduce: str = "sum") -> SparseConvTensor:
        """Merge rows that share a site; see `sparse3d.coalesce`."""
        from .joined import coalesce

        return coalesce(self, reduce)

    def minus(self) -> SparseConvTensor:
        return self.replace_feature(-self._features)

    def dequantize(self) -> SparseConvTensor:
        return self.replace_feature(self._features.dequantize())

    def q_scale(self) -> float:
        if not self.is_quantized:
            _check.fail("features", "quantized for q_scale()", self.dtype)
        return float(self._features.q_scale())

    def __neg__(self) -> SparseConvTensor:
        return self.minus()

    def __add__(self, other: object) -> SparseConvTensor:
        if isinstance(other, SparseConvTensor) and not same_sites(self, other):
            from .joined import add

            return add(self, other)
        return self.replace_feature(self._features + self._operand(other))

    def __radd__(self, other: object) -> SparseConvTensor:
        return self + other

    def __sub__(self, other: object) -> SparseConvTensor:
        if isinstance(other, SparseConvTensor) and not same_sites(self, other):
            from .joined import add

            return add(self, -other)
        return self.replace_feature(self._features - self._operand(other))

    def __rsub__(self, other: object) -> SparseConvTensor:
        return self.replace_feature(self._operand(other) - self._features)

    def __mul__(self, other: object) -> SparseConvTensor:
        return self.replace_feature(self._features * self._operand(other))

    def __rmul__(self, other: object) -> SparseConvTensor:
        return self * other

    def __truediv__(self, other: object) -> SparseConvTensor:
        return self.replace_feature(self._features / self._operand(other))

    def __rtruediv__(self, other: object) -> SparseConvTensor:
        return self.replace_feature(self._operand(other) / self._features)

    def _operand(self, other: object) -> torch.Tensor | float:
        if isinstance(other, SparseConvTensor):
            if not same_sites(self, other):
                way_out = "use + or sparse3d.add for the union of sites"
                _check.fail("operands", "on the same sites", "different sites", way_out)
            rows, other_rows = self._features.shape[0], other._features.shape[0]
            _check.same_rows("features", other_rows, "the other operand", rows)
            return other._features
        if isinstance(other, (torch.Tensor, int, float)):
            return other
        _check.fail_type("operand", "a SparseConvTensor, tensor or number", type(other).__name__)

    def to(self, *args: Any, non_blocking: bool = False, **kwargs: Any) -> SparseConvTensor:
        """Move and convert as `torch.Tensor.to`: indices and maps follow the device, not the
        dtype."""
        features: torch.Tensor = self._features.to(*args, non_blocking=non_blocking, **kwargs)  # type: ignore[call-overload]
        if features.device == self.device:
            return self._with(features, None, self.indice_dict)
        device = features.device
        made = self._with(
            features,
            None,
            {key: data.to(device, non_blocking) for key, data in self.indice_dict.items()},
        )
        made._indices = self._indices.to(device, non_blocking=non_blocking)
        made._coordinates = None
        if self._trusted and self._coordinates is not None and self._coordinates.is_unchanged():
            made.coordinates.trust_distinct()
        return made

    def cpu(self) -> SparseConvTensor:
        return self.to("cpu")

    def cuda(
        self, device: torch.device | str | int | None = None, non_blocking: bool = False
    ) -> SparseConvTensor:
        return self.to("cuda" if device is None else device, non_blocking=non_blocking)

    def float(self) -> SparseConvTensor:
        return self.to(torch.float32)

    def double(self) -> SparseConvTensor:
        return self.to(torch.float64)

    def half(self) -> SparseConvTensor:
        return self.to(torch.float16)

    def bfloat16(self) -> SparseConvTensor:
        return self.to(torch.bfloat16)

    def detach(self) -> SparseConvTensor:
        return self.replace_feature(self._features.detach())

    def pin_memory(self) -> SparseConvTensor:
        """A copy in page-locked memory, for `.cuda(non_blocking=True)`; a DataLoader calls this."""
        made = self._with(self._features.pin_memory(), None, {})
        made._indices = self._indices.pin_memory()
        made._coordinates = None
        return made


def _int32(indices: torch.Tensor) -> torch.Tensor:
    """Checked indices; int64, in which much code counts, is narrowed."""
    if isinstance(indices, torch.Tensor) and indices.dtype == torch.int64:
        indices = _check.narrowed("indices", indices)
    return _check.coordinates("indices", indices)


def _shape(value: Sequence[int] | torch.Tensor | None, ndim: int) -> list[int] | None:
    if value is None:
        return None
    if not hasattr(value, "__iter__"):
        _check.fail_type("spatial_shape", f"{ndim} integers", repr(value))
    for axis, size in enumerate(value):
        if size != int(size):
            _check.fail(f"spatial_shape axis {axis}", "an integer", size)
    entries = [int(size) for size in value]
    if len(entries) != ndim:
        _check.fail(
            "spatial_shape",
            f"of {ndim} entries (indices has {ndim + 1} columns)",
            entries,
            "indices columns are (batch, *axes)",
        )
    for axis, size in enumerate(entries):
        if not 1 <= size <= _check.INT32_MAX:
            _check.fail(f"spatial_shape axis {axis}", f"in [1, {_check.INT32_MAX}]", size)
    return entries


def same_sites(left: SparseConvTensor, right: SparseConvTensor) -> bool:
    """Whether both have the same rows of indices in the same order."""
    if left.indices is right.indices:
        return True
    same = left.indices.shape == right.indices.shape and left.device == right.device
    return same and bool(torch.equal(left.indices, right.indices))
