"""pointops.sampling."""

from __future__ import annotations

import torch

from ...pointops._clouds import checked_pointer
from ...pointops.flat import checked_rows, sample

_THREADS = 1024


def farthest_point_sampling(
    xyz: torch.Tensor, offset: torch.Tensor, new_offset: torch.Tensor
) -> torch.Tensor:
    """(n, 3), ends of clouds, ends of samples -> int32 rows; starts at each cloud's first point."""
    rows = checked_rows("xyz", xyz)
    bounds = checked_pointer("offset", offset, rows.shape[0], inclusive=True)
    ends = new_offset.to("cpu", torch.int64)
    counts = torch.diff(ends, prepend=ends.new_zeros(1))
    sizes = bounds[1:] - bounds[:-1]
    if counts.shape != sizes.shape or bool((counts < 0).any()):
        raise ValueError(
            f"new_offset must be ascending with {sizes.numel()} entries, got {ends.tolist()}"
        )
    if bool(((sizes == 0) & (counts > 0)).any()):
        raise ValueError("new_offset must ask for no point of an empty cloud, got one that does")
    largest = int(sizes.max()) if sizes.numel() else 1
    slots = min(_THREADS, 1 << max(largest.bit_length() - 1, 0))
    return sample(rows, bounds, counts, bounds[:-1], stay=True, slots=slots).int()


furthestsampling = farthest_point_sampling
