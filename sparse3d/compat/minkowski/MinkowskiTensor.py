"""What sparse tensors and fields share: enums, the global manager, batchwise access, arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ... import _check
from ...ops.rows import combine_rows
from ...ops.segment import reduce_segments, take_rows
from ._backend._C import CoordinateMapKey

if TYPE_CHECKING:
    from .MinkowskiCoordinateManager import CoordinateManager

__all__ = [
    "COORDINATE_KEY_DIFFERENT_ERROR",
    "COORDINATE_MANAGER_DIFFERENT_ERROR",
    "SparseTensorOperationMode",
    "SparseTensorQuantizationMode",
    "Tensor",
    "clear_global_coordinate_manager",
    "global_coordinate_manager",
    "set_global_coordinate_manager",
    "set_sparse_tensor_operation_mode",
    "sparse_tensor_operation_mode",
]

COORDINATE_MANAGER_DIFFERENT_ERROR = (
    "coordinate_manager must be one and the same for all tensors, got several; hand the first "
    "tensor's coordinate_manager to the others, or call set_sparse_tensor_operation_mode"
)
COORDINATE_KEY_DIFFERENT_ERROR = "coordinate_map_key must be one and the same for all tensors"

T = TypeVar("T", bound="Tensor")


class SparseTensorOperationMode(Enum):
    """Whether each tensor makes a manager of its own."""

    SEPARATE_COORDINATE_MANAGER = 0
    SHARE_COORDINATE_MANAGER = 1


class SparseTensorQuantizationMode(Enum):
    """What becomes of several rows in one cell."""

    RANDOM_SUBSAMPLE = 0
    UNWEIGHTED_AVERAGE = 1
    UNWEIGHTED_SUM = 2
    NO_QUANTIZATION = 3
    MAX_POOL = 4
    SPLAT_LINEAR_INTERPOLATION = 5


class _Global:
    """The peer's interface keeps these for the whole process."""

    mode = SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER
    manager: CoordinateManager | None = None


def set_sparse_tensor_operation_mode(operation_mode: SparseTensorOperationMode) -> None:
    """Let new tensors share one manager, or have one each."""
    if not isinstance(operation_mode, SparseTensorOperationMode):
        got = type(operation_mode).__name__
        _check.fail_type("operation_mode", "a SparseTensorOperationMode", got)
    _Global.mode = operation_mode


def sparse_tensor_operation_mode() -> SparseTensorOperationMode:
    """The current mode."""
    return _Global.mode


def global_coordinate_manager() -> CoordinateManager | None:
    """The manager that new tensors share, or None."""
    return _Global.manager


def set_global_coordinate_manager(coordinate_manager: CoordinateManager) -> None:
    """Set the manager that new tensors share."""
    _Global.manager = coordinate_manager


def clear_global_coordinate_manager() -> None:
    """Forget the shared manager and its sets."""
    _Global.manager = None


def manager_for(axes: int, given: CoordinateManager | None) -> CoordinateManager:
    """The given manager, the shared one, or a new one."""
    from .MinkowskiCoordinateManager import CoordinateManager

    if given is not None:
        return given
    if _Global.mode == SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER:
        return CoordinateManager(D=axes)
    if _Global.manager is None:
        _Global.manager = CoordinateManager(D=axes)
    return _Global.manager


def quantized(
    features: torch.Tensor,
    first: torch.Tensor,
    inverse: torch.Tensor,
    mode: SparseTensorQuantizationMode,
) -> torch.Tensor:
    """Rows of each cell made one."""
    if mode == SparseTensorQuantizationMode.RANDOM_SUBSAMPLE:
        return take_rows(features, first)
    reduce = {
        SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE: "mean",
        SparseTensorQuantizationMode.UNWEIGHTED_SUM: "sum",
        SparseTensorQuantizationMode.MAX_POOL: "max",
    }
    if mode not in reduce:
        _check.fail("quantization_mode", "one that merges rows", mode, "use .splat() for splatting")
    return reduce_segments(features, inverse, len(first), reduce[mode])


class Tensor:
    """Base of `SparseTensor` and `TensorField`."""

    _F: torch.Tensor
    _C: torch.Tensor | None
    _D: int
    _manager: CoordinateManager
    _batch_rows: list[torch.Tensor] | None
    coordinate_map_key: CoordinateMapKey

    def _like(self: T, features: torch.Tensor) -> T:
        """Other features on the same coordinates."""
        raise NotImplementedError

    def _key(self) -> CoordinateMapKey:
        raise NotImplementedError

    def _batch_column(self) -> torch.Tensor:
        raise NotImplementedError

    @property
    def coordinate_manager(self) -> CoordinateManager:
        return self._manager

    @property
    def tensor_stride(self) -> list[int]:
        return self._key().get_tensor_stride()

    @tensor_stride.setter
    def tensor_stride(self, value: Any) -> None:
        raise SyntaxError("tensor_stride must be left alone, got an assignment")

    @property
    def coordinate_key(self) -> CoordinateMapKey:
        return self._key()

    @property
    def coordinates(self) -> torch.Tensor:
        """[N, 1 + D], batch id first."""
        raise NotImplementedError

    @coordinates.setter
    def coordinates(self, value: Any) -> None:
        raise SyntaxError("coordinates must be left alone, got an assignment")

    @property
    def C(self) -> torch.Tensor:
        return self.coordinates

    @C.setter
    def C(self, value: Any) -> None:
        raise SyntaxError("coordinates must be left alone, got an assignment")

    @property
    def features(self) -> torch.Tensor:
        """[N, C]."""
        return self._F

    @property
    def F(self) -> torch.Tensor:
        return self._F

    @property
    def dimension(self) -> int:
        return self._D

    @dimension.setter
    def dimension(self, value: Any) -> None:
        raise SyntaxError("dimension must be left alone, got an assignment")

    @property
    def D(self) -> int:
        return self._D

    @D.setter
    def D(self, value: Any) -> None:
        raise SyntaxError("dimension must be left alone, got an assignment")

    # -------------------------------------------------------------------------- batchwise

    @property
    def _batchwise_row_indices(self) -> list[torch.Tensor]:
        if self._batch_rows is None:
            _, self._batch_rows = self._manager._rows_by_batch(self._batch_column())
        return self._batch_rows

    @property
    def _sorted_batchwise_row_indices(self) -> list[torch.Tensor]:
        return self._batchwise_row_indices

    @property
    def decomposition_permutations(self) -> list[torch.Tensor]:
        """Rows of each sample."""
        return self._batchwise_row_indices

    @property
    def decomposed_coordinates(self) -> list[torch.Tensor]:
        """Coordinates [N_b, D] of each sample."""
        return [self.C[rows, 1:] for rows in self._batchwise_row_indices]

    def coordinates_at(self, batch_index: int) -> torch.Tensor:
        return self.C[self._batchwise_row_indices[batch_index], 1:]

    @property
    def decomposed_features(self) -> list[torch.Tensor]:
        """Features [N_b, C] of each sample."""
        return [take_rows(self._F, rows) for rows in self._batchwise_row_indices]

    def features_at(self, batch_index: int) -> torch.Tensor:
        return take_rows(self._F, self._batchwise_row_indices[batch_index])

    def coordinates_and_features_at(self, batch_index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.coordinates_at(batch_index), self.features_at(batch_index)

    @property
    def decomposed_coordinates_and_features(
        self,
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return self.decomposed_coordinates, self.decomposed_features

    # --------------------------------------------------------------------- as torch tensors

    @property
    def requires_grad(self) -> bool:
        return self._F.requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> None:
        self._F.requires_grad_(requires_grad)

    def float(self: T) -> T:
        self._F = self._F.float()
        return self

    def double(self: T) -> T:
        self._F = self._F.double()
        return self

    def detach(self: T) -> T:
        self._F = self._F.detach()
        return self

    def __len__(self) -> int:
        return len(self._F)

    def size(self, *args: int) -> Any:
        return self._F.size(*args)

    @property
    def shape(self) -> torch.Size:
        return self._F.shape

    @property
    def device(self) -> torch.device:
        return self._F.device

    @property
    def dtype(self) -> torch.dtype:
        return self._F.dtype

    def get_device(self) -> int:
        return self._F.get_device()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(\n  coordinates={self.C}\n  features={self.F}\n"
            f"  coordinate_map_key={self._key()}\n  coordinate_manager={self._manager}\n"
            f"  spatial dimension={self._D})"
        )

    # ------------------------------------------------------------------------- arithmetic

    def _is_same_key(self, other: Tensor) -> None:
        if not isinstance(other, type(self)):
            _check.fail_type("operand", f"a {type(self).__name__}", type(other).__name__)
        if self._manager is not other._manager:
            raise ValueError(COORDINATE_MANAGER_DIFFERENT_ERROR)
        if self._key() != other._key():
            raise ValueError(
                f"{COORDINATE_KEY_DIFFERENT_ERROR}, got {self._key()} and {other._key()}"
            )

    def __iadd__(self: T, other: T) -> T:  # type: ignore[misc]
        self._is_same_key(other)
        self._F = combine_rows("add", self._F, other._F)
        return self

    def __isub__(self: T, other: T) -> T:  # type: ignore[misc]
        self._is_same_key(other)
        self._F = combine_rows("sub", self._F, other._F)
        return self

    def __imul__(self: T, other: T) -> T:  # type: ignore[misc]
        self._is_same_key(other)
        self._F = combine_rows("mul", self._F, other._F)
        return self

    def __itruediv__(self: T, other: T) -> T:  # type: ignore[misc]
        self._is_same_key(other)
        self._F = combine_rows("div", self._F, other._F)
        return self

    def _binary_functor(self: T, other: Any, function: Callable[[Any, Any], torch.Tensor]) -> T:
        if not isinstance(other, type(self)):
            if isinstance(other, (torch.Tensor, int, float)):
                return self._like(function(self._F, other))
            wanted = f"a {type(self).__name__} or a tensor"
            _check.fail_type("operand", wanted, type(other).__name__)
        if self._manager is not other._manager:
            raise ValueError(COORDINATE_MANAGER_DIFFERENT_ERROR)
        if self._key() == other._key():
            return self._like(function(self._F, other._F))
        return self._on_union(other, function)

    def _on_union(self: T, other: T, function: Callable[[Any, Any], torch.Tensor]) -> T:
        self._is_same_key(other)
        raise AssertionError  # the line above has raised

    def __add__(self: T, other: Any) -> T:
        return self._binary_functor(other, partial(combine_rows, "add"))

    def __sub__(self: T, other: Any) -> T:
        return self._binary_functor(other, partial(combine_rows, "sub"))

    def __mul__(self: T, other: Any) -> T:
        return self._binary_functor(other, partial(combine_rows, "mul"))

    def __truediv__(self: T, other: Any) -> T:
        return self._binary_functor(other, partial(combine_rows, "div"))

    def __pow__(self: T, power: Any) -> T:
        return self._like(combine_rows("pow", self._F, power))

    __power__ = __pow__
