"""Argument checks of the point operators, the same on every device.

Checks that read values (finite, sorted, in range) are skipped while `torch.compile` traces, where
no value exists; shapes and dtypes are always checked.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import torch

from sparse3d._check import FLOATS, fail, fail_type, tensor

SMALLEST_NORMAL = 2.0**-126
"""Squares below the smallest normal float32 are flushed to zero by some GPUs: refused."""


def values_known(value: torch.Tensor) -> bool:
    """Whether the values of a tensor can be looked at."""
    if torch.compiler.is_compiling():
        return False
    return not isinstance(value, torch._subclasses.FakeTensor) and value.device.type != "meta"


def largest(name: str, ids: torch.Tensor, way_out: str) -> int:
    """The largest of some ids, which a size depends on: traces break here, shapes alone fail."""
    if ids.device.type == "meta":
        fail(name, "a tensor with values", "one on meta", way_out)
    return int(ids.max())


def points(name: str, value: Any, ndim: int, dim: int | None = None) -> torch.Tensor:
    """Finite floating points: `ndim` axes, the last one of `dim` coordinates where stated."""
    cloud = shaped(name, value, ndim, dim)
    finite(name, cloud)
    return cloud


def shaped(name: str, value: Any, ndim: int, dim: int | None = None) -> torch.Tensor:
    """`points` whose values are not looked at."""
    cloud = tensor(name, value)
    letters = "(B, N, " if ndim == 3 else "(N, "
    wanted = f"of shape {letters}{'D' if dim is None else dim})"
    if cloud.ndim != ndim or (cloud.shape[-1] != dim if dim is not None else cloud.shape[-1] < 1):
        fail(name, wanted, f"shape {list(cloud.shape)}")
    if cloud.dtype not in FLOATS:
        fail_type(
            name, "float32, float16, bfloat16 or float64", cloud.dtype, "convert with .float()"
        )
    return cloud


def peopled(name: str, cloud: torch.Tensor) -> None:
    """No empty clouds to search, sample or compare: every one of (B, N, D) has a point."""
    if cloud.shape[0] and not cloud.shape[1]:
        shape = f"shape {list(cloud.shape)}"
        fail(name, "of at least one point a cloud", shape, "leave empty clouds out of the batch")


def finite(name: str, value: torch.Tensor) -> None:
    """No NaN and no infinity: neither has a place in an order of distances."""
    if value.numel() == 0 or not values_known(value):
        return
    low, high = torch.aminmax(value.detach())
    if not bool(torch.isfinite(low + 0 * high) & torch.isfinite(high)):
        rows = ~torch.isfinite(value.detach().reshape(-1, value.shape[-1])).all(1)
        first = int(rows.nonzero()[0])
        fail(
            name,
            "finite",
            f"{int(rows.sum())} rows with NaN or infinity (first: row {first})",
            "drop them first, e.g. points[points.isfinite().all(-1)]",
        )


def alike(first: str, a: torch.Tensor, second: str, b: torch.Tensor) -> None:
    """Two clouds of one device, dtype, batch size and number of coordinates."""
    if a.device != b.device:
        fail(
            f"{first} and {second}",
            "on one device",
            f"{first} on {a.device}, {second} on {b.device}",
            "move them with .to(device)",
        )
    if a.dtype != b.dtype:
        fail(
            f"{first} and {second}",
            "of one dtype",
            f"{a.dtype} and {b.dtype}",
            "convert one with .to(dtype)",
        )
    if a.shape[-1] != b.shape[-1]:
        fail(second, f"of {a.shape[-1]} coordinates as {first} has", b.shape[-1])
    if a.ndim == 3 and a.shape[0] != b.shape[0]:
        fail(second, f"of batch size {a.shape[0]} as {first} has", b.shape[0])


def index(name: str, value: Any, ndim: int, limit: int, *, pad: bool) -> torch.Tensor:
    """int32 or int64 indices in [0, limit), with -1 as padding where `pad`."""
    rows = tensor(name, value, ndim)
    if rows.dtype not in (torch.int32, torch.int64):
        fail_type(name, "int64 or int32", rows.dtype, "convert with .long()")
    if rows.numel() and values_known(rows):
        low, high = (int(bound) for bound in torch.aminmax(rows))
        lowest = -1 if pad else 0
        if low < lowest or high >= limit:
            fail(name, f"in [{lowest}, {limit})", low if low < lowest else high)
    return rows


def count(name: str, value: Any, low: int, high: int | None = None, way_out: str = "") -> int:
    """An integer in [low, high]."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        fail_type(name, "an integer", repr(value))
    number = value.__index__()
    if number < low or (high is not None and number > high):
        wanted = f">= {low}" if high is None else f"in [{low}, {high}]"
        fail(name, wanted, number, way_out)
    return int(number)


def number(name: str, value: Any) -> float:
    """A real number, a tensor of one element or NumPy's among them."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        fail_type(name, "a number", repr(value))
    return float(value)


def numbers(name: str, value: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor of what a caller gives as one real number or several."""
    try:
        given = torch.as_tensor(value)
        if not given.is_complex():
            return given if dtype is None else torch.as_tensor(value, dtype=dtype)
    except (TypeError, ValueError, RuntimeError):
        pass
    fail_type(name, "a number or several", repr(value))


def _float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def square_of(value: float, dtype: torch.dtype, *, flat: bool) -> float:
    """A number >= 0 squared as distances of points of `dtype` are compared with it.

    float32 and lower: dense operators use fl32(fl32(r) * fl32(r)), flat ones fl32(r * r) of the
    double product, as their peers do; infinite where float32 holds no such number. float64: the
    double product.
    """
    if dtype == torch.float64:
        return value * value
    try:
        return _float32(value * value if flat else _float32(value) * _float32(value))
    except OverflowError:
        return math.inf


def squared_radius(name: str, radius: Any, dtype: torch.dtype, *, flat: bool) -> float:
    """The number that squared distances are compared with, strictly: `square_of` a radius."""
    value = number(name, radius)
    if not math.isfinite(value) or value <= 0:
        fail(name, "finite and > 0", radius)
    square = square_of(value, dtype, flat=flat)
    double = dtype == torch.float64
    if math.isinf(square) or (square == 0.0 if double else square < SMALLEST_NORMAL):
        held = "float64" if double else "float32"
        fail(name, f"such that its square fits {held}", radius, "rescale the points")
    return square


def lengths(
    name: str, value: Any, batch: int, padded: int, device: torch.device
) -> torch.Tensor | None:
    """Valid points of each cloud, int64 [B] on the CPU, or None where every cloud is full."""
    if value is None:
        return None
    counts = tensor(name, value, 1)
    if counts.dtype not in (torch.int32, torch.int64):
        fail_type(name, "int64 or int32", counts.dtype)
    if counts.shape[0] != batch:
        fail(name, f"of {batch} entries, one a cloud", counts.shape[0])
    if counts.device != device:
        fail(name, f"on {device} as the points are", counts.device, "move it with .to(device)")
    counts = counts.to("cpu", torch.int64)
    if batch and values_known(counts):
        low, high = int(counts.min()), int(counts.max())
        if low < 0 or high > padded:
            fail(name, f"in [0, {padded}], the padded size", low if low < 0 else high)
    return counts


def masked(value: torch.Tensor, counts: torch.Tensor | None) -> torch.Tensor:
    """Zeros behind the valid rows of each cloud."""
    if counts is None:
        return value
    valid = torch.arange(value.shape[1]) < counts[:, None]
    return torch.where(valid.to(value.device)[..., None], value, 0)


def padded(
    name: str, value: Any, lengths_name: str, counts: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Points (B, P, D), finite where valid and zeros behind, and their checked `lengths`."""
    cloud = shaped(name, value, 3)
    valid = lengths(lengths_name, counts, cloud.shape[0], cloud.shape[1], cloud.device)
    cloud = masked(cloud, valid)
    finite(name, cloud)
    return cloud, valid


def computed(value: torch.Tensor) -> torch.Tensor:
    """The contiguous form that operators take: float32 for lower precision, float64 as it is."""
    wide = value if value.dtype in (torch.float32, torch.float64) else value.float()
    return wide.contiguous()
