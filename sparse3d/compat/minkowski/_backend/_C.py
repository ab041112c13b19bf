"""Enums and keys that MinkowskiEngine takes from its compiled half."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum
from typing import Any

import torch

from .... import _check

__all__ = [
    "BroadcastMode",
    "CUDAKernelMapMode",
    "ConvolutionMode",
    "CoordinateMapKey",
    "CoordinateMapType",
    "GPUMemoryAllocatorType",
    "MinkowskiAlgorithm",
    "PoolingMode",
    "RegionType",
    "cuda_version",
    "cudart_version",
    "get_gpu_memory_info",
    "is_cuda_available",
    "quantize_label_np",
    "quantize_label_th",
    "quantize_np",
    "quantize_th",
]


class _Choice(IntEnum):
    """An enum that equals its number, and prints as a name: as the peer's do."""

    __str__ = Enum.__str__

    def __format__(self, format_spec: str) -> str:
        return format(str(self), format_spec)

    def __bool__(self) -> bool:
        return True


class CoordinateMapType(_Choice):
    """Where coordinate maps live; accepted, the tensors decide."""

    CPU = 0
    CUDA = 1


class GPUMemoryAllocatorType(_Choice):
    """Accepted; torch allocates."""

    PYTORCH = 0
    CUDA = 1


class MinkowskiAlgorithm(_Choice):
    """Accepted; the backend chooses."""

    DEFAULT = 0
    MEMORY_EFFICIENT = 1
    SPEED_OPTIMIZED = 2


class CUDAKernelMapMode(_Choice):
    """Accepted; the backend chooses."""

    MEMORY_EFFICIENT = 0
    SPEED_OPTIMIZED = 1


class ConvolutionMode(_Choice):
    """Accepted; the backend chooses."""

    DEFAULT = 0
    DIRECT_GEMM = 1
    COPY_GEMM = 2


class RegionType(_Choice):
    """Kernel shapes."""

    HYPER_CUBE = 0
    HYPER_CROSS = 1
    CUSTOM = 2


class PoolingMode(_Choice):
    """Pooling kinds; the suffixes name algorithms of the peer, and mean nothing here."""

    LOCAL_SUM_POOLING = 0
    LOCAL_AVG_POOLING = 1
    LOCAL_MAX_POOLING = 2
    GLOBAL_SUM_POOLING_DEFAULT = 3
    GLOBAL_AVG_POOLING_DEFAULT = 4
    GLOBAL_MAX_POOLING_DEFAULT = 5
    GLOBAL_SUM_POOLING_KERNEL = 6
    GLOBAL_AVG_POOLING_KERNEL = 7
    GLOBAL_MAX_POOLING_KERNEL = 8
    GLOBAL_SUM_POOLING_PYTORCH_INDEX = 9
    GLOBAL_AVG_POOLING_PYTORCH_INDEX = 10
    GLOBAL_MAX_POOLING_PYTORCH_INDEX = 11


class BroadcastMode(_Choice):
    """Broadcast kinds (the peer spells them so)."""

    ELEMENTWISE_ADDITON = 0
    ELEMENTWISE_MULTIPLICATION = 1


class CoordinateMapKey:
    """Name of a coordinate map: its tensor stride and an id.

    Args:
        stride_or_size: tensor stride, one entry an axis; or the number of columns of a key to be
            set later.
        string_id: tells maps of one stride apart.
    """

    def __init__(self, stride_or_size: Sequence[int] | int, string_id: str = "") -> None:
        self._stride: tuple[int, ...] | None = None
        self._id = string_id
        if isinstance(stride_or_size, int):
            self._size = stride_or_size
        else:
            self._stride = tuple(int(s) for s in stride_or_size)
            self._size = len(self._stride) + 1

    def is_key_set(self) -> bool:
        return self._stride is not None

    def get_coordinate_size(self) -> int:
        """Number of columns of the coordinates, 1 + D."""
        return self._size

    def get_key(self) -> tuple[list[int], str]:
        """Tensor stride and id."""
        return self.get_tensor_stride(), self._id

    def get_tensor_stride(self) -> list[int]:
        if self._stride is None:
            _check.fail("coordinate map key", "set", "one without a tensor stride")
        return list(self._stride)

    def set_key(
        self, stride: Sequence[int] | CoordinateMapKey | tuple[list[int], str], string_id: str = ""
    ) -> None:
        """Name a map."""
        if isinstance(stride, CoordinateMapKey):
            stride = stride.get_key()
        if isinstance(stride, tuple) and len(stride) == 2 and isinstance(stride[1], str):
            stride, string_id = stride
        self._stride, self._id = tuple(int(s) for s in stride), string_id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CoordinateMapKey):
            return NotImplemented
        return (self._stride, self._id, self._size) == (other._stride, other._id, other._size)

    def __hash__(self) -> int:
        return hash((self._stride, self._id, self._size))

    def __repr__(self) -> str:
        stride = None if self._stride is None else list(self._stride)
        return f"coordinate map key:{stride}" + (f":{self._id}" if self._id else "")


def is_cuda_available() -> bool:
    return torch.cuda.is_available()


def cuda_version() -> int:
    """CUDA version as one number (11.8 is 11080), -1 without CUDA."""
    if torch.version.cuda is None:
        return -1
    major, minor = (int(part) for part in torch.version.cuda.split(".")[:2])
    return major * 1000 + minor * 10


def cudart_version() -> int:
    return cuda_version()


def get_gpu_memory_info() -> tuple[int, int]:
    """Free and total bytes of the current GPU.

    Raises:
        RuntimeError: without CUDA.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("get_gpu_memory_info must be called with a GPU present, got none")
    return torch.cuda.mem_get_info()


def quantize_np(coords: Any) -> tuple[Any, Any]:
    """See `utils.quantization.quantize`."""
    from ..utils.quantization import quantize

    return quantize(coords)


def quantize_label_np(coords: Any, labels: Any, invalid_label: int) -> tuple[Any, Any, Any]:
    """First row of each distinct coordinate, each row's place among them, and the labels of
    `utils.quantization.quantize_label`."""
    from ..utils.quantization import quantize, quantize_label

    return (*quantize(coords), quantize_label(coords, labels, invalid_label)[1])


quantize_th, quantize_label_th = quantize_np, quantize_label_np

# The peer's enums leave their values beside them; where two share one, its last one stays.
_LISTED = (
    GPUMemoryAllocatorType,
    CUDAKernelMapMode,
    MinkowskiAlgorithm,
    CoordinateMapType,
    RegionType,
    PoolingMode,
    BroadcastMode,
    ConvolutionMode,
)
globals().update({choice.name: choice for choices in _LISTED for choice in choices})


def __getattr__(name: str) -> Any:
    """Managers and functions, which need what needs the enums above."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _functions, _manager

    gpu = ["GPU_c10", "GPU_default"] if torch.cuda.is_available() else []
    if name in [f"CoordinateMapManager{device}" for device in ("CPU", *gpu)]:
        return _manager.CoordinateMapManagerCPU
    for device in ["CPU", "GPU"] if gpu else ["CPU"]:
        plain = name.removesuffix(device)
        if plain in _functions.__all__ and (plain != name or plain.islower()):
            return getattr(_functions, plain)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
