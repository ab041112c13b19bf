"""torch_scatter.segment_csr: segments given by bounds along the last axis of `indptr`."""

from __future__ import annotations

import torch

from ..._check import fail, fail_type, same_device, tensor
from .scatter import mean, scatter, scatter_max, scatter_min, unknown


def _ids(indptr: torch.Tensor, length: int) -> torch.Tensor:
    """Segment of each entry, for every row of bounds."""
    place = torch.arange(length, device=indptr.device).expand(*indptr.shape[:-1], length)
    inner = indptr[..., 1:].contiguous()
    return torch.searchsorted(inner, place.contiguous(), right=True)


def _checked(indptr: torch.Tensor, src: torch.Tensor) -> None:
    """Bounds that ascend inside the axis they cut."""
    tensor("indptr", indptr)
    same_device(indptr=indptr, src=src)
    if indptr.dtype not in (torch.int32, torch.int64):
        fail_type("indptr", "int64 or int32", indptr.dtype, "convert with .long()")
    if not 1 <= indptr.ndim <= src.ndim or indptr.shape[-1] < 1:
        fail("indptr", f"of 1 to {src.ndim} axes, the last not empty", list(indptr.shape))
    if bool((indptr[..., 1:] < indptr[..., :-1]).any()):
        fail("indptr", "ascending along its last axis", "bounds that decrease")


def _reduce(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None, reduce: str
) -> tuple[torch.Tensor, torch.Tensor | None]:
    _checked(indptr, src)
    dim = indptr.dim() - 1
    indptr = indptr.expand(*src.shape[:dim], indptr.shape[-1])
    first, last = (int(indptr.min()), int(indptr.max())) if indptr.numel() else (0, 0)
    if first < 0 or last > src.shape[dim]:
        fail("indptr", f"in [0, {src.shape[dim]}]", first if first < 0 else last)
    kept = src.narrow(dim, 0, last)
    ids = _ids(indptr, last)
    segments = indptr.shape[-1] - 1
    if first > 0:  # entries before the first bound belong to nobody
        before = torch.arange(last, device=indptr.device) < indptr[..., :1]
        ids = torch.where(before, segments, ids)
    size = segments + 1 if first > 0 else segments
    arg = None
    if reduce in ("min", "max"):
        run = scatter_min if reduce == "min" else scatter_max
        result, arg = run(kept, ids, dim, None, size)
        arg = torch.where(arg == last, src.shape[dim], arg).narrow(dim, 0, segments)
    elif reduce == "mean":
        result = mean(kept, ids, dim, None, size, "trunc")
    else:
        result = scatter(kept, ids, dim, None, size, reduce)
    result = result.narrow(dim, 0, segments)
    return (result if out is None else out.copy_(result)), arg


def segment_sum_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Sum of each segment."""
    return _reduce(src, indptr, out, "sum")[0]


segment_add_csr = segment_sum_csr


def segment_mean_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean of each segment; integers are cut towards zero."""
    return _reduce(src, indptr, out, "mean")[0]


def segment_min_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minimum of each segment and its position."""
    result, arg = _reduce(src, indptr, out, "min")
    if arg is None:
        unknown("min")
    return result, arg


def segment_max_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Maximum of each segment and its position."""
    result, arg = _reduce(src, indptr, out, "max")
    if arg is None:
        unknown("max")
    return result, arg


def segment_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None, reduce: str = "sum"
) -> torch.Tensor:
    """Reduction of each segment by name."""
    if reduce not in ("sum", "add", "mean", "min", "max"):
        unknown(reduce)
    return _reduce(src, indptr, out, reduce)[0]


def gather_csr(
    src: torch.Tensor, indptr: torch.Tensor, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Each segment's entry repeated over its length."""
    _checked(indptr, src)
    dim = indptr.dim() - 1
    indptr = indptr.expand(*src.shape[:dim], indptr.shape[-1])
    ids = _ids(indptr, int(indptr.reshape(-1)[-1]))
    spread = ids.reshape([*ids.shape, *[1] * (src.dim() - ids.dim())])
    shape = [*ids.shape, *src.shape[dim + 1 :]]
    result = src.gather(dim, spread.expand(shape))
    return result if out is None else out.copy_(result)
