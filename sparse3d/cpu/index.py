"""The spatial index: points in Hilbert order under a box hierarchy."""

from __future__ import annotations

import torch

from ..pointops.index import spatial_index
from ._library import address, call, library, path, threads
from ._points import table


def _indexable(reference: torch.Tensor, clouds: torch.Tensor) -> bool:
    return reference.dtype == torch.float32 and reference.shape[1] <= 3


@spatial_index.kernel("cpu")
def _spatial_index(reference: torch.Tensor, clouds: torch.Tensor) -> torch.Tensor:
    if not _indexable(reference, clouds):
        return reference.new_empty(0, dtype=torch.uint8)
    reference, rows = reference.contiguous(), table(clouds)
    block = torch.empty(library.s3d_index_bytes(address(rows), len(rows)), dtype=torch.uint8)
    call(
        "s3d_index_build",
        address(reference),
        reference.shape[1],
        address(rows),
        len(rows),
        threads(),
        path(),
        address(block),
    )
    return block
