"""Joins."""

from __future__ import annotations

from typing import Any

import torch

from ... import _check
from ...kernel_map import Coordinates
from ...ops.coordinates import unique
from ...ops.segment import reduce_segments

__all__ = ["cat", "generative_add"]


def cat(inputs: list[Any]) -> Any:
    """Join channels of tensors on the same rows."""
    first = inputs[0]
    for other in inputs[1:]:
        _check.same_rows("cat: tensor", len(other.feats), "the first", len(first.feats))
    return first.like(torch.cat([x.feats for x in inputs], 1))


def generative_add(a: Any, b: Any) -> Any:
    """Sum over the union of the coordinates."""
    if a.stride != b.stride:
        _check.fail("operands", f"of stride {a.stride}", b.stride)
    joined = torch.cat([a.sites().indices, b.sites().indices])
    first, inverse = unique(joined)
    total = reduce_segments(torch.cat([a.feats, b.feats]), inverse, len(first))
    sites = Coordinates(joined[first].contiguous(), None, max(x.sites().batch_size for x in (a, b)))
    sites.trust_distinct()
    kind = type(a)
    coords = kind.from_indices(sites.indices, a.stride)
    return kind(total, coords, a.stride, a.spatial_range)
