"""Samples to batches."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .... import _check
from ....ops.lattice import floored

__all__ = ["SparseCollation", "batch_sparse_collate", "batched_coordinates", "sparse_collate"]

Device = torch.device | str | None


def _tensor(value: Any) -> torch.Tensor:
    return (
        torch.from_numpy(value) if isinstance(value, np.ndarray) else _check.tensor("array", value)
    )


def _with_batch(coords: Sequence[Any], dtype: torch.dtype, device: Device) -> torch.Tensor:
    if dtype not in (torch.int32, torch.float32):
        _check.fail_type("dtype", "int32 or float32", dtype)
    parts = []
    for batch, sample in enumerate(coords):
        rows = _tensor(sample)
        if rows.ndim != 2:
            _check.fail("coords", "of 2 axes for each sample", list(rows.shape))
        rows = floored("coords", rows) if dtype == torch.int32 else rows.to(dtype)
        parts.append(torch.cat([rows.new_full((len(rows), 1), batch), rows], 1))
    if len({part.shape[1] for part in parts}) > 1:
        _check.fail("coords", "of one number of axes", [part.shape[1] - 1 for part in parts])
    return torch.cat(parts).to(device or "cpu")


def batched_coordinates(
    coords: Sequence[Any], dtype: torch.dtype = torch.int32, device: Device = None
) -> torch.Tensor:
    """Coordinates [N_b, D] of samples as [N, 1 + D] with the batch id first; floats are floored."""
    return _with_batch(coords, dtype, device)


def sparse_collate(
    coords: Sequence[Any],
    feats: Sequence[Any],
    labels: Sequence[Any] | None = None,
    dtype: torch.dtype = torch.int32,
    device: Device = None,
) -> tuple[Any, ...]:
    """Coordinates with batch ids, features, and labels if given, of samples in turn."""
    rows = sum(len(c) for c in coords)
    _check.same_rows("feats", sum(len(f) for f in feats), "coords", rows)
    batched = _with_batch(coords, dtype, device)
    features = torch.cat([_tensor(f) for f in feats])
    if labels is None:
        return batched, features
    joined: Any = [_tensor(v) if isinstance(v, np.ndarray) else v for v in labels]
    if isinstance(joined[0], torch.Tensor):
        joined = torch.cat(joined)
    return batched, features, joined


def batch_sparse_collate(
    data: Sequence[tuple[Any, ...]], dtype: torch.dtype = torch.int32, device: Device = None
) -> tuple[Any, ...]:
    """`sparse_collate` of (coords, feats[, labels]) tuples, as a DataLoader's `collate_fn`."""
    coords, feats, *labels = [list(part) for part in zip(*data, strict=True)]
    return sparse_collate(coords, feats, labels[0] if labels else None, dtype, device)


class SparseCollation:
    """`sparse_collate` as an object, with a limit on the points of a batch.

    Args:
        limit_numpoints: samples past so many points are left out, with a warning; <= 0 for none.
        dtype: of the coordinates.
        device: of the coordinates.
    """

    def __init__(
        self,
        limit_numpoints: int = -1,
        dtype: torch.dtype = torch.int32,
        device: Device = None,
    ) -> None:
        self.limit_numpoints = limit_numpoints
        self.dtype = dtype
        self.device = device

    def __call__(self, list_data: Sequence[tuple[Any, Any, Any]]) -> tuple[Any, ...]:
        kept: list[tuple[Any, ...]] = []
        points = 0
        for sample in list_data:
            points += len(sample[0])
            if 0 < self.limit_numpoints < points:
                logging.getLogger(__name__).warning(
                    "batch cut to %d of %d samples by limit_numpoints=%d",
                    len(kept),
                    len(list_data),
                    self.limit_numpoints,
                )
                break
            kept.append(sample)
        return batch_sparse_collate(kept, self.dtype, self.device)
