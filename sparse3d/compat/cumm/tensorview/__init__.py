"""`cumm.tensorview` on numpy: `from_numpy(array).numpy()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from ..._refusal import refused
from . import gemm

__all__ = [
    "CUDAKernelTimer",
    "Context",
    "Tensor",
    "empty",
    "float16",
    "float32",
    "float64",
    "from_numpy",
    "full",
    "gemm",
    "get_compute_capability",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "zeros",
]

float16, float32, float64 = np.dtype("f2"), np.dtype("f4"), np.dtype("f8")
int8, int16, int32, int64 = np.dtype("i1"), np.dtype("i2"), np.dtype("i4"), np.dtype("i8")
uint8, uint16, uint32, uint64 = np.dtype("u1"), np.dtype("u2"), np.dtype("u4"), np.dtype("u8")


class Tensor(np.ndarray[Any, Any]):
    """A numpy array with cumm's ways out."""

    def __new__(cls, shape: Sequence[int] = (0,), dtype: Any = np.float32, device: int = -1) -> Any:
        return super().__new__(cls, tuple(shape), dtype)

    def numpy(self) -> npt.NDArray[Any]:
        """The plain array, copied."""
        return np.array(self)

    def numpy_view(self) -> npt.NDArray[Any]:
        """The plain array, memory shared."""
        return np.asarray(self)

    def cpu(self) -> Tensor:
        return self

    def cuda(self, *_: object) -> NoReturn:
        """Not here.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            "Tensor.cuda must be left out with sparse3d, got a call; use torch tensors on a GPU"
        )

    def clone(self) -> Tensor:
        return from_numpy(self.copy())

    def zero_(self, *_: object) -> Tensor:
        """Fill with zeros."""
        self.fill(0)
        return self

    def copy_(self, other: npt.NDArray[Any], *_: object) -> None:
        """Take over another's values."""
        self[...] = other

    def dim(self, axis: int) -> int:
        return int(self.shape[axis])

    def empty(self) -> bool:
        return self.size == 0

    def bytesize(self) -> int:
        return int(self.nbytes)

    def byte_pointer(self) -> int:
        """Address of the first element."""
        return int(self.ctypes.data)


def from_numpy(array: npt.NDArray[Any]) -> Tensor:
    """The array as a Tensor, memory shared."""
    return np.asarray(array).view(Tensor)


def zeros(shape: Sequence[int], dtype: Any = np.float32, device: int = -1) -> Tensor:
    """A zero Tensor."""
    return full(shape, 0, dtype, device)


def empty(shape: Sequence[int], dtype: Any = np.float32, device: int = -1) -> Tensor:
    """A Tensor of any values."""
    return full(shape, 0, dtype, device)


def full(shape: Sequence[int], value: Any, dtype: Any = np.float32, device: int = -1) -> Tensor:
    """A Tensor of one value."""
    return from_numpy(np.full(tuple(shape), value, dtype))


class CUDAKernelTimer:
    """Accepted; measures nothing.

    Args:
        enable: accepted.
    """

    def __init__(self, enable: bool = False) -> None:
        self.enable = False


Context = refused("cumm.tensorview.Context", "torch's current stream is used")


def get_compute_capability(device: int = 0) -> tuple[int, int]:
    """Of a CUDA device."""
    return torch.cuda.get_device_capability(device)
