"""Names of spconv's `cppcore` that user code reads; there is no tensor bridge to cross here."""

from __future__ import annotations

from typing import NoReturn

import torch

__all__ = [
    "TorchAllocator",
    "TorchSpconvMatmul",
    "get_arch",
    "get_current_stream",
    "torch_tensor_to_tv",
    "torch_tensors_to_tv",
]


def get_current_stream() -> int:
    """Handle of torch's current CUDA stream, 0 without CUDA."""
    if not torch.cuda.is_available():
        return 0
    return int(torch.cuda.current_stream().cuda_stream)


def get_arch() -> tuple[int, int]:
    """Compute capability of the current CUDA device.

    Raises:
        RuntimeError: without CUDA.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("get_arch must be called with a CUDA device present, got none")
    return torch.cuda.get_device_capability()


class _Refusal:
    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.__doc__ = "Not here: sparse3d's operators take torch tensors."

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"{self.__name__} must be left out with sparse3d, got a call; "
            "its operators take torch tensors as they are"
        )


torch_tensor_to_tv = _Refusal("torch_tensor_to_tv")
torch_tensors_to_tv = _Refusal("torch_tensors_to_tv")
TorchAllocator = _Refusal("TorchAllocator")
TorchSpconvMatmul = _Refusal("TorchSpconvMatmul")
