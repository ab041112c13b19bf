"""Points to cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .... import _check
from ....ops.coordinates import distinct
from ....ops.keys import fnv_hash, ravel_keys
from ....ops.lattice import floored
from ....ops.segment import agreed_labels, take_rows
from ....ops.voxelize import quantize as quantize_points
from ..MinkowskiCommon import StrideType
from ..MinkowskiCoordinateManager import CoordinateManager

__all__ = [
    "fnv_hash_vec",
    "quantize",
    "quantize_label",
    "ravel_hash_vec",
    "sparse_quantize",
    "unique_coordinate_map",
]

Array = npt.NDArray[Any]


def fnv_hash_vec(arr: Array) -> npt.NDArray[np.uint64]:
    """FNV-1 hash of each row, 64 bits (the peer calls it FNV64-1A)."""
    rows = torch.from_numpy(np.asarray(arr).astype(np.int64))
    return fnv_hash(rows, "FNV-1").numpy().view(np.uint64)


def ravel_hash_vec(arr: Array) -> npt.NDArray[np.uint64]:
    """Row-major cell number of each row in the bounding box."""
    return ravel_keys(torch.from_numpy(np.asarray(arr))).numpy().view(np.uint64)


def _cells(coords: torch.Tensor) -> torch.Tensor:
    cells = torch.cat([coords.new_zeros((len(coords), 1)), coords], 1)
    return _check.narrowed("coordinates", cells)


def quantize(coords: Any) -> tuple[Any, Any]:
    """First row of each distinct coordinate [N, D], and each row's place among them."""
    if isinstance(coords, np.ndarray):
        first, inverse = distinct(_cells(torch.from_numpy(coords)))
        return first.numpy(), inverse.numpy()
    return distinct(_cells(coords))


def quantize_label(coords: Any, labels: Any, ignore_label: int) -> tuple[Any, Any]:
    """First row of each distinct coordinate, and its label, or `ignore_label` where they differ."""
    if isinstance(coords, np.ndarray):
        first, merged = quantize_label(
            torch.from_numpy(coords), torch.from_numpy(np.asarray(labels)), ignore_label
        )
        return first.numpy(), merged.numpy()
    first, inverse = distinct(_cells(coords))
    return first, agreed_labels(labels, inverse, len(first), ignore_label)


def _quantized(coordinates: Any, size: Any) -> torch.Tensor:
    points = torch.from_numpy(coordinates) if isinstance(coordinates, np.ndarray) else coordinates
    if size is None:
        return floored("coordinates", points)
    if not np.isscalar(size) and len(size) != points.shape[1]:
        axes = points.shape[1]
        _check.fail("quantization_size", f"a number or {axes} numbers", size)
    if not points.is_floating_point():
        points = points.double() if isinstance(coordinates, np.ndarray) else points.float()
    edges: Any = size if np.isscalar(size) else [float(edge) for edge in size]
    return quantize_points(points, edges)


def sparse_quantize(
    coordinates: Any,
    features: Any = None,
    labels: Any = None,
    ignore_label: int = -100,
    return_index: bool = False,
    return_inverse: bool = False,
    return_maps_only: bool = False,
    quantization_size: float | Sequence[float] | None = None,
    device: str = "cpu",
) -> Any:
    """Cells of points.

    Args:
        coordinates: [N, D] array or tensor, no batch column.
        features: [N, C].
        labels: [N]; cells whose points differ get `ignore_label`.
        ignore_label: see `labels`.
        return_index: give the first row of each cell too.
        return_inverse: give each point's cell too; needs `return_index`.
        return_maps_only: give index (and inverse) alone.
        quantization_size: edge of a cell, or one an axis; None means 1.
        device: of the coordinates.

    Returns:
        Cells int32 [M, D] in order of first occurrence, then features, labels, index and inverse as
        asked for.
    """
    if return_inverse and not (return_index or return_maps_only):
        _check.fail("return_index", "True where return_inverse is", return_index)
    for name, value in (("features", features), ("labels", labels)):
        if value is not None:
            _check.same_rows(name, len(value), "coordinates", len(coordinates))
    cells = _quantized(coordinates, quantization_size).to(device)
    first, inverse = distinct(_cells(cells))
    if return_maps_only:
        return (first, inverse) if return_inverse else first
    made: list[Any] = [cells[first]]
    if features is not None:
        made.append(_rows(features, first))
    if labels is not None:
        made.append(_merged_labels(labels, first, inverse, ignore_label))
    if return_index:
        made.append(first)
    if return_inverse:
        made.append(inverse)
    return made[0] if len(made) == 1 else tuple(made)


def _rows(values: Any, rows: torch.Tensor) -> Any:
    if isinstance(values, np.ndarray):
        return values[rows.cpu().numpy()]
    return take_rows(values, rows.to(values.device))


def _merged_labels(
    labels: Any, first: torch.Tensor, inverse: torch.Tensor, ignore_label: int
) -> Any:
    given = torch.from_numpy(labels) if isinstance(labels, np.ndarray) else torch.as_tensor(labels)
    merged = agreed_labels(given, inverse.to(given.device), len(first), ignore_label)
    return merged.numpy() if isinstance(labels, np.ndarray) else merged


def unique_coordinate_map(
    coordinates: torch.Tensor, tensor_stride: StrideType = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """First row of each distinct coordinate [N, 1 + D], and each row's place among them."""
    manager = CoordinateManager(D=coordinates.shape[1] - 1)
    cells = _check.narrowed("coordinates", coordinates)
    return manager.insert_and_map(cells, tensor_stride)[1]
