"""`TensorField`: features at continuous coordinates."""

from __future__ import annotations

from typing import Any

import torch

from ... import _check
from ...ops.segment import first_of_segments, spread_segments, take_rows
from ...ops.voxelize import cell_corners, interpolate_grad
from ._backend._C import CoordinateMapKey
from .MinkowskiCommon import StrideType, convert_to_int_list
from .MinkowskiCoordinateManager import CoordinateManager
from .MinkowskiSparseTensor import SparseTensor, check_parts
from .MinkowskiTensor import SparseTensorQuantizationMode, Tensor, manager_for, quantized

__all__ = ["TensorField", "create_splat_coordinates"]

MEAN = SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE
MODES = (
    MEAN,
    SparseTensorQuantizationMode.UNWEIGHTED_SUM,
    SparseTensorQuantizationMode.RANDOM_SUBSAMPLE,
    SparseTensorQuantizationMode.MAX_POOL,
)


def create_splat_coordinates(coordinates: torch.Tensor) -> torch.Tensor:
    """The 2^D corners of each point's cell: int32 [N * 2^D, 1 + D], repeats left in."""
    return cell_corners(coordinates).flatten(0, 1)


class TensorField(Tensor):
    """Features at continuous coordinates.

    Args:
        features: [N, C].
        coordinates: floating [N, 1 + D], batch id first.
        tensor_stride: unit of the coordinates.
        coordinate_field_map_key: of a field that the manager has; instead of coordinates.
        coordinate_manager: shared with other tensors; None makes one.
        quantization_mode: what `sparse` does with several points in one cell.
        allocator_type: accepted, as is `minkowski_algorithm`.
        minkowski_algorithm: see `allocator_type`.
        requires_grad: set on the features.
        device: to move features and coordinates to.

    Raises:
        ValueError: if neither coordinates nor key and manager are given, or rows differ.
    """

    def __init__(
        self,
        features: torch.Tensor,
        coordinates: torch.Tensor | None = None,
        tensor_stride: StrideType = 1,
        coordinate_field_map_key: CoordinateMapKey | None = None,
        coordinate_manager: CoordinateManager | None = None,
        quantization_mode: SparseTensorQuantizationMode = MEAN,
        allocator_type: Any = None,
        minkowski_algorithm: Any = None,
        requires_grad: bool | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        check_parts(features, coordinates, coordinate_field_map_key, coordinate_manager, field=True)
        if quantization_mode not in MODES:
            _check.fail("quantization_mode", f"one of {MODES}", quantization_mode)
        if device is not None:
            features = features.to(device)
            coordinates = None if coordinates is None else coordinates.to(device)
        self.quantization_mode = quantization_mode
        self._batch_rows = None
        self._C = coordinates
        if coordinates is None:
            assert coordinate_field_map_key is not None
            assert coordinate_manager is not None
            self._manager, self._D = coordinate_manager, coordinate_manager.D
            self.coordinate_field_map_key = coordinate_field_map_key
        else:
            self._D = coordinates.shape[1] - 1
            self._manager = manager_for(self._D, coordinate_manager)
            stride = convert_to_int_list(tensor_stride, self._D)
            self.coordinate_field_map_key = self._manager.insert_field(coordinates.float(), stride)
        if requires_grad is not None:
            features.requires_grad_(requires_grad)
        self._F = features
        self._inverse_mapping: dict[CoordinateMapKey, torch.Tensor] = {}

    def _like(self, features: torch.Tensor) -> TensorField:
        made = TensorField(
            features,
            coordinate_field_map_key=self.coordinate_field_map_key,
            coordinate_manager=self._manager,
            quantization_mode=self.quantization_mode,
        )
        made._C = self._C
        made._inverse_mapping = self._inverse_mapping
        return made

    def _key(self) -> CoordinateMapKey:
        return self.coordinate_field_map_key

    def _batch_column(self) -> torch.Tensor:
        return self.coordinates[:, 0].int()

    @property
    def coordinates(self) -> torch.Tensor:
        """Floating [N, 1 + D]."""
        if self._C is None:
            self._C = self._manager.get_coordinate_field(self.coordinate_field_map_key)
        return self._C

    @coordinates.setter
    def coordinates(self, value: Any) -> None:
        raise SyntaxError("coordinates must be left alone, got an assignment")

    def sparse(
        self,
        tensor_stride: StrideType = 1,
        coordinate_map_key: CoordinateMapKey | None = None,
        quantization_mode: SparseTensorQuantizationMode | None = None,
    ) -> SparseTensor:
        """One row for each cell, or the rows of a set that is there."""
        mode = self.quantization_mode if quantization_mode is None else quantization_mode
        if coordinate_map_key is None:
            stride = convert_to_int_list(tensor_stride, self._D)
            coordinate_map_key, (first, inverse) = self._manager.field_to_sparse_insert_and_map(
                self.coordinate_field_map_key, stride
            )
            features = quantized(self._F, first, inverse, mode)
        else:
            inverse, _ = self._manager.field_to_sparse_map(
                self.coordinate_field_map_key, coordinate_map_key
            )
            features = self._onto(inverse, self._manager.size(coordinate_map_key), mode)
        self._inverse_mapping[coordinate_map_key] = inverse
        return SparseTensor(
            features,
            coordinate_map_key=coordinate_map_key,
            coordinate_manager=self._manager,
            quantization_mode=mode,
        )

    def _onto(
        self, inverse: torch.Tensor, size: int, mode: SparseTensorQuantizationMode
    ) -> torch.Tensor:
        """Rows of a given set; 0 where no point lies."""
        inside = (inverse >= 0).nonzero()[:, 0]
        rows = inverse[inside]
        if mode == SparseTensorQuantizationMode.RANDOM_SUBSAMPLE:
            return spread_segments(take_rows(self._F, inside), first_of_segments(rows, size))
        place = torch.arange(size, device=rows.device)
        return quantized(take_rows(self._F, inside), place, rows, mode)

    def splat(self) -> SparseTensor:
        """Spread each point over the corners of its cell with linear weights."""
        corners = create_splat_coordinates(self.C)
        key, _ = self._manager.insert_and_map(corners)
        rows, weights = self._manager.corners(key, self.C.to(self._F.dtype))
        size = self._manager.size(key)
        features = interpolate_grad(self._F.contiguous(), rows, weights.to(self._F.dtype), size)
        return SparseTensor(features, coordinate_map_key=key, coordinate_manager=self._manager)

    def inverse_mapping(self, sparse_tensor_map_key: CoordinateMapKey) -> torch.Tensor:
        """Row of each point in a set, int64 [N], -1 where its cell is not there."""
        if sparse_tensor_map_key not in self._inverse_mapping:
            rows, _ = self._manager.field_to_sparse_map(
                self.coordinate_field_map_key, sparse_tensor_map_key
            )
            self._inverse_mapping[sparse_tensor_map_key] = rows
        return self._inverse_mapping[sparse_tensor_map_key]
