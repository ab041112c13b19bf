"""Argument checks. Every error message is born here, so that it reads the same on every device.

Form: *name must be X, got Y; way out*. `TypeError` for kinds and dtypes, `ValueError` for values
and shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INT32_MAX = 2**31 - 1


def fail(name: str, wanted: str, got: object, way_out: str = "") -> NoReturn:
    """Raise the ValueError of the house form."""
    raise ValueError(f"{name} must be {wanted}, got {got}" + (f"; {way_out}" if way_out else ""))


def fail_type(name: str, wanted: str, got: object, way_out: str = "") -> NoReturn:
    """Raise the TypeError of the house form."""
    raise TypeError(f"{name} must be {wanted}, got {got}" + (f"; {way_out}" if way_out else ""))


def tensor(name: str, value: Any, ndim: int | None = None) -> torch.Tensor:
    """A dense strided tensor, of `ndim` axes if stated."""
    if not isinstance(value, torch.Tensor):
        fail_type(name, "a torch.Tensor", type(value).__name__)
    if value.layout != torch.strided:
        fail_type(
            name, "a dense (strided) tensor", f"layout {value.layout}", "call .to_dense() first"
        )
    if ndim is not None and value.ndim != ndim:
        fail(name, f"{ndim}-dimensional", f"shape {list(value.shape)}")
    return value


def features(name: str, value: Any) -> torch.Tensor:
    """Feature rows [N, C] of a floating dtype."""
    rows = tensor(name, value, 2)
    if rows.dtype not in FLOATS:
        fail_type(
            name, "float32, float16, bfloat16 or float64", rows.dtype, "convert with .float()"
        )
    return rows


def coordinates(name: str, value: Any) -> torch.Tensor:
    """Integer coordinates [N, 1 + D], D = 1..4, int32."""
    coords = tensor(name, value, 2)
    if coords.dtype != torch.int32:
        fail_type(name, "int32", coords.dtype, "convert with .int() after checking the range")
    if not 2 <= coords.shape[1] <= 5:
        fail(
            name,
            "of shape [N, 1 + D] with D = 1..4 (batch, then the axes)",
            f"shape {list(coords.shape)}",
        )
    return coords


def valued(name: str, value: torch.Tensor) -> torch.Tensor:
    """A tensor whose values can be read: on `meta` only shapes and dtypes are."""
    if value.device.type == "meta" and not torch.compiler.is_compiling():
        way_out = "make it on the device that computes"
        fail(name, "a tensor with values", "one on meta, which has a shape only", way_out)
    return value


def narrowed(name: str, value: torch.Tensor) -> torch.Tensor:
    """Whole numbers as int32; what int32 does not hold is refused instead of wrapped."""
    if value.dtype != torch.int32 and value.numel() and not torch.compiler.is_compiling():
        valued(name, value)
        low, high = (bound.item() for bound in torch.aminmax(value.detach()))
        if not (low >= -INT32_MAX - 1 and high <= INT32_MAX):
            fail(name, "within int32", f"{low}..{high}", "shift or rescale the coordinates")
    return value.int()


def same_device(**tensors: torch.Tensor | None) -> None:
    """All given tensors on one device."""
    given = {name: value.device for name, value in tensors.items() if value is not None}
    devices = list(given.values())
    if devices and devices.count(devices[0]) < len(devices):
        listed = ", ".join(f"{name} on {device}" for name, device in given.items())
        fail(" and ".join(given), "on one device", listed, "move them with .to(device)")


def same_rows(name: str, rows: int, other: str, other_rows: int, way_out: str = "") -> None:
    """Two tensors with equal row counts."""
    if rows != other_rows:
        fail(name, f"of {other_rows} rows as {other} has", f"{rows} rows", way_out)


def row_limit(name: str, rows: int) -> None:
    """Row numbers are 32-bit."""
    if rows > INT32_MAX:
        fail(name, f"at most {INT32_MAX} rows", rows, "split the batch")


def channels(layer: str, wanted: int, got: int) -> None:
    """A layer's input channels."""
    if wanted != got:
        fail(f"{layer}: input features", f"of {wanted} channels", f"{got} channels")


def per_channel(name: str, row: torch.Tensor | None, wanted: int) -> None:
    """None, or one number a channel in any shape."""
    if row is not None and row.numel() != wanted:
        fail(name, f"{wanted} numbers, one a channel", list(row.shape))


def positive(name: str, value: int) -> int:
    """An integer above zero."""
    # A traced integer is an int, but torch 2.7 cannot say whether it has an attribute.
    if isinstance(value, bool) or not (isinstance(value, int) or hasattr(value, "__index__")):
        fail_type(name, "an integer", repr(value))
    if value <= 0:
        fail(name, "> 0", value)
    return int(value)


def grid(layer: str, shape: Sequence[int], came_from: Sequence[int]) -> None:
    """No axis of an output grid may vanish or pass int32."""
    for axis, size in enumerate(shape):
        if size < 1:
            fail(
                f"{layer}: output grid",
                "at least 1 on every axis",
                f"{list(shape)} (axis {axis} of input grid {list(came_from)} vanishes)",
                "pad the layer or enlarge spatial_shape",
            )
        if size > INT32_MAX:
            fail(f"{layer}: output grid", f"at most {INT32_MAX} an axis", list(shape))


def indices_in_grid(
    coords: torch.Tensor, spatial_shape: Sequence[int] | None, batch_size: int
) -> None:
    """Batch ids in [0, batch_size), positions in [0, shape) where a grid is stated; names column,
    value, limit."""
    if coords.shape[0] == 0:
        return
    valued("indices", coords)
    low, high = torch.aminmax(coords, dim=0)
    bounds = torch.stack([low, high]).tolist()
    limits: list[int | None] = [batch_size]
    limits += [None] * (coords.shape[1] - 1) if spatial_shape is None else list(spatial_shape)
    for column, limit in enumerate(limits):
        name = "batch id" if column == 0 else f"axis {column - 1}"
        if limit is None:
            continue
        for value in (bounds[0][column], bounds[1][column]):
            if not 0 <= value < limit:
                way_out = (
                    "raise batch_size or renumber the samples"
                    if column == 0
                    else "enlarge spatial_shape or drop the row; columns are (batch, *axes)"
                )
                fail(f"indices column {column} ({name})", f"in [0, {limit})", value, way_out)
