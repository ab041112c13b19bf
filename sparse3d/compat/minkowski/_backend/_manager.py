"""The coordinate manager with the signatures of the peer's compiled half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from .... import _check

if TYPE_CHECKING:
    from ..MinkowskiCoordinateManager import CoordinateManager
    from ._C import CoordinateMapKey, MinkowskiAlgorithm, RegionType

__all__ = ["CoordinateMapManagerCPU", "manager_of"]

Maps = tuple["CoordinateMapKey", tuple[torch.Tensor, torch.Tensor]]
Rows = tuple[torch.Tensor, list[torch.Tensor]]


class CoordinateMapManagerCPU:
    """What `CoordinateManager._manager` is: the same sets, arguments by position alone.

    Args:
        minkowski_algorithm: accepted, as is `num_threads`.
        num_threads: see `minkowski_algorithm`.
        of: the manager whose sets these are; None makes one at the first insertion.
    """

    def __init__(
        self,
        minkowski_algorithm: MinkowskiAlgorithm | None = None,
        num_threads: int = -1,
        *,
        of: CoordinateManager | None = None,
    ) -> None:
        self._of = of

    @property
    def _sets(self) -> CoordinateManager:
        if self._of is None:
            _check.fail("coordinate manager", "one with coordinates", "an empty one")
        return self._of

    def _for(self, coordinates: torch.Tensor) -> CoordinateManager:
        if self._of is None:
            from ..MinkowskiCoordinateManager import CoordinateManager

            self._of = CoordinateManager(D=coordinates.shape[1] - 1)
        return self._of

    def insert_and_map(
        self, coordinates: torch.Tensor, tensor_stride: Sequence[int], string_id: str
    ) -> Maps:
        return self._for(coordinates).insert_and_map(coordinates, tensor_stride, string_id)

    def insert_field(
        self, coordinates: torch.Tensor, tensor_stride: Sequence[int], string_id: str
    ) -> CoordinateMapKey:
        return self._for(coordinates).insert_field(coordinates, tensor_stride, string_id)

    def field_to_sparse_insert_and_map(
        self, field: CoordinateMapKey, tensor_stride: Sequence[int], string_id: str = ""
    ) -> Maps:
        return self._sets.field_to_sparse_insert_and_map(field, tensor_stride, string_id)

    def exists_field_to_sparse(self, field: CoordinateMapKey, key: CoordinateMapKey) -> bool:
        return self._sets.exists_field_to_sparse(field, key)

    def field_to_sparse_keys(self, field: tuple[Sequence[int], str]) -> list[CoordinateMapKey]:
        from ._C import CoordinateMapKey

        return self._sets.field_to_sparse_keys(CoordinateMapKey(*field))

    def get_field_to_sparse_map(
        self, field: CoordinateMapKey, key: CoordinateMapKey
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._sets.get_field_to_sparse_map(field, key)

    def field_to_sparse_map(
        self, field: CoordinateMapKey, key: CoordinateMapKey
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self._sets.field_to_sparse_map(field, key)

    def stride(
        self, key: CoordinateMapKey, stride: Sequence[int], string_id: str = ""
    ) -> CoordinateMapKey:
        return self._sets.stride(key, stride, string_id)

    def origin(self) -> CoordinateMapKey:
        return self._sets.origin()

    def origin_field(self) -> CoordinateMapKey:
        return self._sets.origin_field()

    def origin_map(self, key: CoordinateMapKey) -> Rows:
        return self._sets.origin_map(key)

    def origin_field_map(self, key: CoordinateMapKey) -> Rows:
        return self._sets.origin_field_map(key)

    def origin_map_size(self) -> int:
        return self._sets.number_of_unique_batch_indices()

    def stride_map(
        self, in_key: CoordinateMapKey, stride_key: CoordinateMapKey
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, cells = self._sets.stride_map(in_key, stride_key)
        return rows, cells

    def union_map(
        self, in_keys: Sequence[CoordinateMapKey], out_key: CoordinateMapKey
    ) -> list[torch.Tensor]:
        return self._sets.union_map(in_keys, out_key)

    def interpolation_map_weight(
        self, samples: torch.Tensor, key: CoordinateMapKey
    ) -> list[torch.Tensor]:
        return list(self._sets.interpolation_map_weight(key, samples))

    def kernel_map(
        self,
        in_key: CoordinateMapKey,
        out_key: CoordinateMapKey,
        kernel_size: Sequence[int],
        kernel_stride: Sequence[int],
        kernel_dilation: Sequence[int],
        region_type: RegionType,
        region_offset: torch.Tensor,
        is_transpose: bool,
        is_pool: bool,
    ) -> dict[int, torch.Tensor]:
        """`CoordinateManager.kernel_map`, the size before the stride."""
        step = (kernel_stride, kernel_size, kernel_dilation)
        region = (region_type, region_offset)
        return self._sets.kernel_map(in_key, out_key, *step, *region, is_transpose, is_pool)

    def get_coordinates(self, key: CoordinateMapKey) -> torch.Tensor:
        return self._sets.get_coordinates(key)

    def get_coordinate_field(self, key: CoordinateMapKey) -> torch.Tensor:
        return self._sets.get_coordinate_field(key)

    def get_coordinate_map_keys(self, tensor_stride: Sequence[int]) -> list[CoordinateMapKey]:
        return [] if self._of is None else self._of.get_coordinate_map_keys(tensor_stride)

    def get_random_string_id(
        self, tensor_stride: Sequence[int], string_id: str
    ) -> tuple[list[int], str]:
        """Tensor stride and an id that no set of that stride has."""
        return self._sets._unused(tensor_stride, string_id)

    def size(self, key: CoordinateMapKey) -> int:
        return self._sets.size(key)

    def print_coordinate_map(self, key: CoordinateMapKey) -> str:
        rows, columns = self._sets.get_coordinates(key).shape
        return f"{key}: {rows} x {columns}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoordinateMapManagerCPU):
            return NotImplemented
        return self is other or (self._of is not None and self._of is other._of)

    def __hash__(self) -> int:
        return id(self) if self._of is None else id(self._of)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._of})"


def manager_of(manager: CoordinateManager | CoordinateMapManagerCPU) -> CoordinateManager:
    """The coordinate manager of either kind."""
    return manager._sets if isinstance(manager, CoordinateMapManagerCPU) else manager
