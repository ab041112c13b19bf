"""How far a result may lie from the float64 answer, by the dtype it was computed in.

Each figure bounds ``|actual - expected|`` relative to ``max(1, largest |expected|)``. Inputs are
rounded to the dtype before both sides compute, so what is left is accumulation (float32, or float64
for float64) and the rounding of the result itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

FORWARD = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}
"""Forward results."""

GRADIENT = {
    torch.float64: 1e-12,
    torch.float32: 1e-4,
    torch.float16: 4e-3,
    torch.bfloat16: 3.2e-2,
}
"""Gradients: longer sums."""

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
"""What every op takes for features."""


def as_numpy(value: object) -> npt.NDArray[Any]:
    """A tensor (bfloat16 included) or array as a float64 or integer array."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return value.double().numpy() if value.is_floating_point() else value.numpy()
    return np.asarray(value)


def assert_close(
    actual: object,
    expected: object,
    dtype: torch.dtype,
    table: dict[torch.dtype, float] = FORWARD,
    what: str = "result",
) -> None:
    """Fail unless shapes agree and the error is within ``table[dtype]`` of the answer's size."""
    left, right = as_numpy(actual), as_numpy(expected)
    if left.shape != right.shape:
        raise AssertionError(f"{what}: shape {left.shape} against {right.shape}")
    if not right.size:
        return
    if (np.isnan(left) != np.isnan(right)).any():
        raise AssertionError(f"{what}: NaN at {int(np.isnan(left).sum())} places")
    error = float(np.nanmax(np.abs(left - right), initial=0.0))
    bound = table[dtype] * max(1.0, float(np.nanmax(np.abs(right), initial=0.0)))
    if error > bound:
        raise AssertionError(f"{what}: error {error:.3g} above {bound:.3g} for {dtype}")


def assert_same(actual: object, expected: object, what: str = "result") -> None:
    """Fail unless two integer results agree everywhere, naming the first difference."""
    left, right = as_numpy(actual), as_numpy(expected)
    if left.shape != right.shape:
        raise AssertionError(f"{what}: shape {left.shape} against {right.shape}")
    if not np.array_equal(left, right):
        where = tuple(int(i) for i in np.argwhere(left != right)[0])
        raise AssertionError(f"{what}: {left[where]} against {right[where]} at {where}")
