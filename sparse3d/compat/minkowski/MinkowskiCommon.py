"""Small helpers that third-party layers import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ... import _check
from ._backend import _C

__all__ = [
    "MinkowskiModuleBase",
    "StrideType",
    "convert_to_int_list",
    "convert_to_int_tensor",
    "get_minkowski_function",
    "get_postfix",
    "prep_args",
]

StrideType = int | Sequence[int] | np.ndarray[Any, Any] | torch.Tensor


def convert_to_int_list(arg: StrideType, dimension: int) -> list[int]:
    """One integer an axis."""
    if isinstance(arg, (Sequence, np.ndarray, torch.Tensor)) and np.ndim(arg) > 0:
        values = [int(value) for value in arg]
        if len(values) != dimension:
            _check.fail("argument", f"of {dimension} entries (one an axis)", values)
        return values
    return [int(arg)] * dimension  # type: ignore[arg-type]


def convert_to_int_tensor(arg: StrideType, dimension: int) -> torch.Tensor:
    """One integer an axis, as an int32 tensor."""
    return torch.tensor(convert_to_int_list(arg, dimension), dtype=torch.int32)


def prep_args(
    tensor_stride: StrideType,
    stride: StrideType,
    kernel_size: StrideType,
    dilation: StrideType,
    region_type: Any,
    D: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """The arguments as int32 tensors, one entry an axis."""
    sizes = (convert_to_int_tensor(v, D) for v in (tensor_stride, stride, kernel_size, dilation))
    made = tuple(sizes)
    return made[0], made[1], made[2], made[3], int(getattr(region_type, "value", region_type))


def get_postfix(tensor: torch.Tensor) -> str:
    """GPU or CPU."""
    return "GPU" if tensor.is_cuda else "CPU"


def get_minkowski_function(name: str, variable: torch.Tensor) -> Callable[..., Any]:
    """A function of the backend, as `ConvolutionForward`, for a tensor's device.

    Raises:
        ValueError: if there is none of that name.
    """
    function = getattr(_C, name + get_postfix(variable), None)
    if function is None:
        _check.fail("name", "that of a function of MinkowskiEngineBackend._C", repr(name))
    made: Callable[..., Any] = function
    return made


class MinkowskiModuleBase(nn.Module):
    """Base of all layers."""
