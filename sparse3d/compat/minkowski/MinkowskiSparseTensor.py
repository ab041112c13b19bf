"""`SparseTensor`: features on a set of the coordinate manager."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ... import _check
from ...ops.dense import to_dense
from ...ops.lattice import batch_count, extent, floored, on_lattice, window
from ...ops.rows import combine_spread
from ...ops.segment import spread_segments
from ...ops.voxelize import devoxelize
from ._backend._C import CoordinateMapKey
from .MinkowskiCommon import StrideType, convert_to_int_list
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiTensor import SparseTensorQuantizationMode, Tensor, manager_for, quantized

if TYPE_CHECKING:
    from .MinkowskiTensorField import TensorField

__all__ = ["SparseTensor"]

RANDOM = SparseTensorQuantizationMode.RANDOM_SUBSAMPLE
SLICEABLE = (RANDOM, SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE)


class SparseTensor(Tensor):
    """Features on sparse coordinates.

    Args:
        features: [N, C].
        coordinates: int32 [N, 1 + D], batch id first, negative ones allowed; floats are floored.
        tensor_stride: of the coordinates, which are its multiples.
        coordinate_map_key: of a set that the manager has; instead of coordinates.
        coordinate_manager: shared with other tensors; None makes one.
        quantization_mode: what becomes of several rows at one place.
        allocator_type: accepted, as is `minkowski_algorithm`.
        minkowski_algorithm: see `allocator_type`.
        requires_grad: set on the features.
        device: to move features and coordinates to.

    Raises:
        ValueError: if neither coordinates nor key and manager are given, or rows differ.
        TypeError: if an argument is no tensor.
    """

    def __init__(
        self,
        features: torch.Tensor,
        coordinates: torch.Tensor | None = None,
        tensor_stride: StrideType = 1,
        coordinate_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
        quantization_mode: SparseTensorQuantizationMode = RANDOM,
        allocator_type: Any = None,
        minkowski_algorithm: Any = None,
        requires_grad: bool | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_parts(features, coordinates, coordinate_map_key, coordinate_manager)
        if device is not None:
            features = features.to(device)
            coordinates = None if coordinates is None else coordinates.to(device)
        self.quantization_mode = quantization_mode
        self._batch_rows = None
        self._C = None
        if coordinates is None:
            assert coordinate_map_key is not None
            assert coordinate_manager is not None
            self._manager, self._D = coordinate_manager, coordinate_manager.D
            self.coordinate_map_key = coordinate_map_key
        else:
            self._D = coordinates.shape[1] - 1
            self._manager = manager_for(self._D, coordinate_manager)
            key = CoordinateMapKey(convert_to_int_list(tensor_stride, self._D), "")
            _, features, self.coordinate_map_key = self.initialize_coordinates(
                coordinates, features, key
            )
        if requires_grad is not None:
            features.requires_grad_(requires_grad)
        self._F = features

    def initialize_coordinates(
        self,
        coordinates: torch.Tensor,
        features: torch.Tensor,
        coordinate_map_key: CoordinateMapKey,
    ) -> tuple[torch.Tensor, torch.Tensor, CoordinateMapKey]:
        """Add the coordinates to the manager and merge rows at one place."""
        if coordinates.is_floating_point():
            message = "coordinates are floored to int32; call .int() to say so yourself"
            warnings.warn(message, stacklevel=3)
        coordinates = floored("coordinates", coordinates)
        key, (first, inverse) = self._manager.insert_and_map(
            coordinates, *coordinate_map_key.get_key()
        )
        self.unique_index, self.inverse_mapping = first, inverse
        if len(first) != len(inverse) and self.quantization_mode in (
            RANDOM,
            SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE,
            SparseTensorQuantizationMode.UNWEIGHTED_SUM,
            SparseTensorQuantizationMode.MAX_POOL,
        ):
            features = quantized(features, first, inverse, self.quantization_mode)
        return coordinates[first], features, key

    def _like(self, features: torch.Tensor) -> SparseTensor:
        return SparseTensor(
            features,
            coordinate_map_key=self.coordinate_map_key,
            coordinate_manager=self._manager,
            quantization_mode=self.quantization_mode,
        )

    def _key(self) -> CoordinateMapKey:
        return self.coordinate_map_key

    def _batch_column(self) -> torch.Tensor:
        return self._manager.sites(self.coordinate_map_key).indices[:, 0]

    @property
    def coordinates(self) -> torch.Tensor:
        """int32 [N, 1 + D], multiples of the tensor stride."""
        return self._manager.get_coordinates(self.coordinate_map_key)

    @coordinates.setter
    def coordinates(self, value: Any) -> None:
        raise SyntaxError("coordinates must be left alone, got an assignment")

    def _on_union(
        self, other: SparseTensor, function: Callable[[Any, Any], torch.Tensor]
    ) -> SparseTensor:
        key = CoordinateMapKey(self.coordinate_map_key.get_coordinate_size())
        mine, theirs = self._manager.union_map(
            [self.coordinate_map_key, other.coordinate_map_key], key
        )
        made = combine_spread(
            function,
            (self._F, mine[1]),
            (other._F, theirs[1]),
            self._manager.size(key),
            keep_left=self._manager.upstream_arithmetic,
        )
        return SparseTensor(made, coordinate_map_key=key, coordinate_manager=self._manager)

    # ------------------------------------------------------------------------- conversions

    def sparse(
        self,
        min_coords: torch.Tensor | None = None,
        max_coords: torch.Tensor | None = None,
        contract_coords: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As a torch sparse tensor [B, *spatial, C], with its lower bound and tensor stride."""
        low = self._bound("min_coords", self.C[:, 1:].amin(0) if min_coords is None else min_coords)
        high = self.C if max_coords is None else self._bound("max_coords", max_coords)
        unit = self.tensor_stride if contract_coords else None
        places = window(self.C, low[0, 1:], unit).long().t()
        spatial = extent(window(high, low[0, 1:], unit))
        low = window(low, None, unit)
        batch = self._manager.sites(self.coordinate_map_key).batch_size
        size = [batch, *spatial, self._F.shape[1]]
        with warnings.catch_warnings():
            # torch 2.11 says that nobody opted in or out, even to those who just did.
            warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")
            made = torch.sparse_coo_tensor(places, self._F, size, check_invariants=True)
        return made, low[:, 1:], torch.tensor(self.tensor_stride, dtype=torch.int32)

    def _bound(self, name: str, bound: torch.Tensor) -> torch.Tensor:
        """A corner of a grid as a row, the batch id 0; a multiple of the tensor stride."""
        row = nn.functional.pad(bound.to(self.C).reshape(1, -1), (1, 0))
        if not bool(on_lattice(row, self.tensor_stride).all()):
            wanted = f"multiples of the tensor stride {self.tensor_stride}"
            _check.fail(name, wanted, row[0, 1:].tolist())
        return row

    def dense(
        self,
        shape: Sequence[int] | None = None,
        min_coordinate: torch.Tensor | int | None = None,
        contract_stride: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """As a dense tensor [B, C, *spatial], with its lower bound and tensor stride.

        Args:
            shape: [B, C, *spatial]; C may be any number.
            min_coordinate: taken off the coordinates; None or 0 for the origin.
            contract_stride: divide coordinates by the tensor stride.

        Raises:
            ValueError: if a coordinate is negative and no bound is given, or there is neither a
                row nor a shape.
        """
        low = self.C.new_zeros((1, self._D))
        if isinstance(min_coordinate, torch.Tensor):
            low = self._bound("min_coordinate", min_coordinate)[:, 1:]
        elif min_coordinate is None and len(self.C):
            low_seen = self.C[:, 1:].amin(0)
            if bool((low_seen < 0).any()):
                way_out = "give min_coordinate"
                _check.fail("coordinates", ">= 0 for dense()", low_seen.tolist(), way_out)
        indices = window(self.C, low, self.tensor_stride if contract_stride else None)
        if shape is None:
            if not len(indices):
                _check.fail("shape", "given for a tensor without rows", None)
            batch, spatial = batch_count(indices), extent(indices)
        else:
            batch, spatial = int(shape[0]), [int(n) for n in shape[2:]]
        grid = to_dense(self._F, indices, spatial, batch).movedim(-1, 1).contiguous()
        return grid, low, torch.tensor(self.tensor_stride, dtype=torch.int32)

    # ---------------------------------------------------------------------- back to fields

    def interpolate(self, X: TensorField) -> TensorField:
        """Features at a field's points, linearly interpolated."""
        return X._like(self.features_at_coordinates(X.C.to(self._F.dtype)))

    def _rows_for(self, X: Tensor) -> torch.Tensor:
        from .MinkowskiTensorField import TensorField

        if isinstance(X, TensorField):
            if X.quantization_mode not in SLICEABLE:
                _check.fail("quantization_mode", f"one of {SLICEABLE}", X.quantization_mode)
            return X.inverse_mapping(self.coordinate_map_key)
        if not isinstance(X, SparseTensor):
            _check.fail_type("X", "a TensorField or SparseTensor", type(X).__name__)
        if X.coordinate_map_key != self.coordinate_map_key:
            _check.fail("X", f"on {self.coordinate_map_key}", X.coordinate_map_key)
        return X.inverse_mapping

    def _as_field(self, features: torch.Tensor, X: Tensor, rows: torch.Tensor) -> TensorField:
        from .MinkowskiTensorField import TensorField

        if isinstance(X, TensorField):
            return X._like(features)
        return TensorField(
            features,
            coordinates=self.C[rows],
            coordinate_manager=self._manager,
            quantization_mode=self.quantization_mode,
        )

    def slice(self, X: Tensor) -> TensorField:
        """Each point of `X` takes the features of its cell (0 where there is none)."""
        rows = self._rows_for(X)
        return self._as_field(spread_segments(self._F, rows), X, rows)

    def cat_slice(self, X: Tensor) -> TensorField:
        """`slice`, with the features of `X` behind."""
        rows = self._rows_for(X)
        own = X.F if len(X.F) == len(rows) else spread_segments(X.F, rows)
        return self._as_field(torch.cat([spread_segments(self._F, rows), own], 1), X, rows)

    def features_at_coordinates(self, query_coordinates: torch.Tensor) -> torch.Tensor:
        """Features at points [Q, 1 + D], linearly interpolated between sites of the tensor stride;
        absent sites count 0."""
        if query_coordinates.dtype != self.dtype:
            _check.fail_type("query_coordinates", str(self.dtype), query_coordinates.dtype)
        key = self.coordinate_map_key
        sites, kept = self._manager.level(key)
        return devoxelize(
            self._F if kept is None else self._F[kept],
            coords=sites.indices,
            points=self._manager.in_units(key, query_coordinates),
        )


def check_parts(
    features: Any, coordinates: Any, key: Any, manager: Any, *, field: bool = False
) -> None:
    """Refuse arguments that make no tensor."""
    _check.features("features", features)
    if coordinates is None:
        if key is None or manager is None:
            wanted = "given, or a key together with its coordinate_manager"
            _check.fail("coordinates", wanted, "neither")
        rows = len(manager._field(key)) if field else len(manager.sites(key))
        _check.same_rows("features", len(features), "the coordinates", rows)
        return
    if key is not None:
        _check.fail("coordinates", "None where a coordinate map key is given", "both")
    _check.tensor("coordinates", coordinates, 2)
    _check.same_device(features=features, coordinates=coordinates)
    _check.same_rows("features", len(features), "coordinates", len(coordinates))


def _get_coordinate_map_key(
    input: SparseTensor,
    coordinates: torch.Tensor | SparseTensor | CoordinateMapKey | None = None,
    tensor_stride: StrideType = 1,
    expand_coordinates: bool = False,
) -> CoordinateMapKey:
    """The key of the coordinates that a layer is asked for, or one to be set by the layer."""
    if coordinates is None or expand_coordinates:
        return CoordinateMapKey(input.coordinate_map_key.get_coordinate_size())
    if isinstance(coordinates, torch.Tensor):
        cells = _check.narrowed("coordinates", coordinates)
        return input._manager.insert_and_map(cells, tensor_stride)[0]
    if isinstance(coordinates, SparseTensor):
        return coordinates.coordinate_map_key
    return coordinates
