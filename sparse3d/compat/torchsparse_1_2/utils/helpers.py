"""`torchsparse.utils.helpers`: batches and voxels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .... import _check
from ....ops.coordinates import unique_sorted
from ....ops.keys import ravel_keys
from ....ops.lattice import window
from ....ops.segment import count_segments
from ....ops.voxelize import quantize
from ...torchsparse.utils.utils import make_ntuple
from ..sparse_tensor import SparseTensor

__all__ = [
    "SparseTensor",
    "make_list",
    "make_tuple",
    "np",
    "ravel_hash_vec",
    "sparse_collate",
    "sparse_collate_fn",
    "sparse_collate_tensors",
    "sparse_quantize",
    "torch",
]
# `np`, `torch` and `SparseTensor`: code of that time takes them from `import *`.

Array = npt.NDArray[Any]


def make_tuple(inputs: Any, dimension: int = 3) -> tuple[int, ...]:
    """One integer an axis."""
    return make_ntuple(inputs, ndim=dimension)


def make_list(x: Any, size: int = 3) -> Array:
    """One integer an axis, as an array."""
    return np.array(make_ntuple(x, ndim=size))


def ravel_hash_vec(arr: Array) -> npt.NDArray[np.uint64]:
    """Row-major cell number of each row in the bounding box; `arr` is left alone."""
    return ravel_keys(torch.from_numpy(np.asarray(arr))).numpy().view(np.uint64)


def sparse_quantize(
    coords: Array,
    feats: Any = None,
    labels: Any = None,
    ignore_label: int = 255,
    return_index: bool = False,
    return_invs: bool = False,
    hash_type: str = "ravel",
    quantization_size: Any = 1,
) -> Any:
    """Cells of points, in the order of `ravel_hash_vec`, counted from the lowest.

    Args:
        coords: [N, D].
        feats: [N, C]; the first point's are each cell's.
        labels: [N]; a cell of several points gets `ignore_label`, whether they agree or not.
        ignore_label: see `labels`.
        return_index: give the first point of each cell instead of cells and features; so it is
            where neither features nor labels are given.
        return_invs: give each point's cell too.
        hash_type: "ravel".
        quantization_size: edge, or one an axis.

    Raises:
        ValueError: if `hash_type` is another word.
    """
    if hash_type != "ravel":
        _check.fail("hash_type", "'ravel'", repr(hash_type))
    points = torch.from_numpy(np.asarray(coords, np.float64))
    sizes = np.broadcast_to(np.asarray(quantization_size, np.float64), points.shape[1:]).tolist()
    cells = quantize(points, sizes)
    rows = torch.cat([cells.new_zeros((len(cells), 1)), cells], 1)
    first, inverse = unique_sorted(rows)
    index = first.numpy()
    if return_index or (feats is None and labels is None):
        made: list[Any] = [index]
    else:
        lowest = rows[:, 1:].amin(0) if len(rows) else None
        made = [window(rows, lowest)[first, 1:].double().numpy()]
        if feats is not None:
            made.append(feats[index])
    if labels is not None:
        crowded = (count_segments(inverse, len(first)) > 1).numpy()
        made.append(np.where(crowded, ignore_label, np.asarray(labels)[index]))
    if return_invs:
        made.append(inverse.numpy())
    return made[0] if len(made) == 1 else tuple(made)


def sparse_collate(
    coords: Any,
    feats: Any,
    labels: Any = None,
    is_double: bool = False,
    coord_float: bool = False,
) -> Any:
    """Samples as one batch: coordinates with the batch id last, features, and labels if given.

    Args:
        coords: [N_b, D] of each sample, numpy or torch.
        feats: [N_b, C] of each.
        labels: [N_b] of each, or None.
        is_double: features as float64.
        coord_float: coordinates as float32, else int32.
    """
    kind = torch.float32 if coord_float else torch.int32
    columns = []
    for batch, sample in enumerate(coords):
        rows = torch.as_tensor(sample).to(kind)
        columns.append(torch.cat([rows, rows.new_full((len(rows), 1), batch)], 1))
    width = torch.float64 if is_double else torch.float32
    made = [torch.cat(columns), torch.cat([torch.as_tensor(sample).to(width) for sample in feats])]
    if labels is not None:
        made.append(torch.cat([torch.as_tensor(sample) for sample in labels]))
    return tuple(made)


def sparse_collate_tensors(sparse_tensors: list[Any]) -> SparseTensor:
    """Sparse tensors with coordinates [N, 3] as one."""
    coords, feats = sparse_collate([x.C for x in sparse_tensors], [x.F for x in sparse_tensors])
    return SparseTensor(feats, coords, sparse_tensors[0].s)


def sparse_collate_fn(batch: list[Any]) -> Any:
    """Samples, dictionaries or tuples with sparse tensors in them, as one batch."""
    first = batch[0]
    if isinstance(first, dict):
        return {name: _joined([sample[name] for sample in batch]) for name in first}
    return tuple(_joined(list(values)) for values in zip(*batch, strict=True))


def _joined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return sparse_collate_fn(values)
    if isinstance(first, SparseTensor):
        return sparse_collate_tensors(values)
    if isinstance(first, (np.ndarray, torch.Tensor)):
        return torch.stack([torch.as_tensor(value) for value in values])
    return values
