"""`cumm.tensorview` on numpy: `from_numpy(array).numpy()`."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Tensor", "from_numpy", "gemm", "zeros"]


class Tensor(np.ndarray[Any, Any]):
    """A numpy array with cumm's way out."""

    def numpy(self) -> npt.NDArray[Any]:
        """The plain array."""
        return self.view(np.ndarray)

    def cpu(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return from_numpy(self.copy())


def from_numpy(array: npt.NDArray[Any]) -> Tensor:
    """The array as a Tensor, memory shared."""
    return np.asarray(array).view(Tensor)


def zeros(shape: list[int], dtype: Any = np.float32, device: int = -1) -> Tensor:
    """A zero Tensor."""
    return from_numpy(np.zeros(shape, dtype))


class _Activation(Enum):
    None_ = 0
    ReLU = 1
    Sigmoid = 2
    LeakyReLU = 3


class gemm:
    """`tensorview.gemm`."""

    Activation = _Activation
