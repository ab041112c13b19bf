"""torch_scatter.segment_coo: sorted indices along the last axis of `index`."""

from __future__ import annotations

import torch

from ..._check import fail, same_device, tensor
from ...pointops._inputs import index as indices
from ...pointops._inputs import values_known
from .scatter import mean, scatter, scatter_max, scatter_min, scatter_sum, unknown


def _sorted(index: torch.Tensor) -> torch.Tensor:
    """The index, which must ascend along its last axis."""
    tensor("index", index)
    if index.ndim < 1:
        fail("index", "of at least one axis", f"shape {list(index.shape)}")
    if values_known(index) and bool((index[..., 1:] < index[..., :-1]).any()):
        fail("index", "sorted along its last axis", "one that decreases", "use scatter instead")
    return index


def segment_sum_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Sum of each segment."""
    return scatter_sum(src, _sorted(index), index.dim() - 1, out, dim_size)


segment_add_coo = segment_sum_coo


def segment_mean_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> torch.Tensor:
    """Mean of each segment; integers are cut towards zero."""
    return mean(src, _sorted(index), index.dim() - 1, out, dim_size, "trunc")


def segment_min_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum of each segment and its position."""
    return scatter_min(src, _sorted(index), index.dim() - 1, out, dim_size)


def segment_max_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum of each segment and its position."""
    return scatter_max(src, _sorted(index), index.dim() - 1, out, dim_size)


def segment_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: torch.Tensor | None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Reduction of each segment by name."""
    if reduce not in ("sum", "add", "mean", "min", "max"):
        unknown(reduce)
    if reduce == "mean":
        return segment_mean_coo(src, index, out, dim_size)
    return scatter(src, _sorted(index), index.dim() - 1, out, dim_size, reduce)


def gather_coo(
    src: torch.Tensor, index: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The segment's entry for every index."""
    tensor("index", index)
    same_device(src=src, index=index)
    if not 1 <= index.ndim <= src.ndim:
        fail("index", f"of 1 to {src.ndim} axes", list(index.shape))
    dim = index.dim() - 1
    index = indices("index", index, index.ndim, src.shape[dim], pad=False).long()
    index = index.expand(*src.shape[:dim], index.shape[-1])
    spread = index.reshape([*index.shape, *[1] * (src.dim() - index.dim())])
    result = src.gather(dim, spread.expand(*index.shape, *src.shape[dim + 1 :]))
    return result if out is None else out.copy_(result)
