"""Samples to batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .... import _check
from ..tensor import SparseTensor

__all__ = ["sparse_collate", "sparse_collate_fn"]


def sparse_collate(inputs: list[Any]) -> Any:
    """Join sparse tensors, adding the batch column where its version has it.

    Args:
        inputs: coordinates [N, 3] (x, y, z), numpy or torch, of one stride.
    """
    first = inputs[0]
    kind = type(first)
    coords, feats = [], []
    for batch, sample in enumerate(inputs):
        if sample.stride != first.stride:
            _check.fail("inputs", f"of stride {first.stride}", sample.stride)
        rows = torch.as_tensor(sample.coords)
        column = rows.new_full((len(rows), 1), batch, dtype=torch.int32)
        parts = [column, rows.int()] if kind.batch_column == 0 else [rows.int(), column]
        coords.append(torch.cat(parts, 1))
        feats.append(torch.as_tensor(sample.feats))
    return kind(torch.cat(feats), torch.cat(coords), first.stride)


def sparse_collate_fn(inputs: list[Any]) -> Any:
    """Join samples, dictionaries with sparse tensors in them, as a DataLoader's `collate_fn`."""
    first = inputs[0]
    if isinstance(first, dict):
        return {name: _joined([sample[name] for sample in inputs]) for name in first}
    return inputs


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return sparse_collate_fn(values)
    if isinstance(first, np.ndarray):
        return torch.stack([torch.tensor(value) for value in values])
    if isinstance(first, torch.Tensor):
        return torch.stack(values)
    if isinstance(first, SparseTensor):
        return sparse_collate(values)
    return values
