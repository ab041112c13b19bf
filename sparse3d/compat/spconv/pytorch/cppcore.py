"""`spconv.pytorch.cppcore`: torch tensors as `cumm.tensorview` tensors, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .... import _check
from ....nn.cppcore import TorchSpconvMatmul, get_arch, get_current_stream
from ...cumm import tensorview as tv

__all__ = [
    "TorchAllocator",
    "TorchSpconvMatmul",
    "get_arch",
    "get_current_stream",
    "torch_tensor_to_tv",
    "torch_tensors_to_tv",
]


_TORCH_DTYPE_TO_TV = {
    torch.float16: tv.float16,
    torch.float32: tv.float32,
    torch.float64: tv.float64,
    torch.int8: tv.int8,
    torch.int16: tv.int16,
    torch.int32: tv.int32,
    torch.int64: tv.int64,
    torch.uint8: tv.uint8,
}


def torch_tensor_to_tv(
    ten: torch.Tensor,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> tv.Tensor:
    """A torch tensor as a tensorview tensor, memory shared.

    Args:
        ten: on the CPU.
        dtype: of tensorview, to read the same bytes as; None keeps the tensor's.
        shape: to read contiguous elements as; None keeps the tensor's.
        stride: in elements; None keeps the tensor's, or makes it contiguous with `shape`.

    Raises:
        ValueError: if the tensor lies on another device.
    """
    if ten.device.type != "cpu":
        way_out = "sparse3d's operators take torch tensors as they are"
        _check.fail("ten", "on the CPU", ten.device, way_out)
    plain = ten.detach()
    array = (plain.int_repr() if plain.is_quantized else plain).numpy()
    if dtype is not None:
        array = array.view(dtype)
    if stride is not None:
        steps = [array.itemsize * int(step) for step in stride]
        array = np.lib.stride_tricks.as_strided(
            array, array.shape if shape is None else shape, steps
        )
    elif shape is not None:
        array = array.reshape(tuple(shape))
    return tv.from_numpy(array)


def torch_tensors_to_tv(*tens: torch.Tensor) -> Iterator[tv.Tensor]:
    """Each of the tensors as a tensorview tensor."""
    return (torch_tensor_to_tv(ten) for ten in tens)


class TorchAllocator:
    """Memory of torch handed out as tensorview tensors, by name and by address.

    Args:
        gpudevice: where tensors of device 0 are made.
        is_quantized: not here.
    """

    def __init__(self, gpudevice: torch.device, is_quantized: bool = False) -> None:
        if is_quantized:
            raise NotImplementedError(
                "TorchAllocator: is_quantized must be False, got True; int8 quantisation is not "
                "implemented"
            )
        self.gpudevice = gpudevice
        self.cpudevice = torch.device("cpu")
        self.allocated: dict[str | int, torch.Tensor] = {}

    def zeros(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        device: int,
        stream: int = 0,
        is_temp_memory: bool = False,
        scale: float = 1.0,
    ) -> tv.Tensor:
        """A zero tensor, kept under `name` unless temporary."""
        return self._keep(name, np.zeros(tuple(shape), dtype), device, is_temp_memory)

    def empty(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        device: int,
        stream: int = 0,
        is_temp_memory: bool = False,
        scale: float = 1.0,
    ) -> tv.Tensor:
        """A tensor that nothing is written to."""
        return self._keep(name, np.empty(tuple(shape), dtype), device, is_temp_memory)

    def full_int(
        self,
        name: str,
        shape: Sequence[int],
        value: int,
        dtype: Any,
        device: int,
        stream: int = 0,
        is_temp_memory: bool = False,
    ) -> tv.Tensor:
        """A tensor of one integer."""
        return self._keep(name, np.full(tuple(shape), value, dtype), device, is_temp_memory)

    def full_float(
        self,
        name: str,
        shape: Sequence[int],
        value: float,
        dtype: Any,
        device: int,
        stream: int = 0,
        is_temp_memory: bool = False,
    ) -> tv.Tensor:
        """A tensor of one number."""
        return self._keep(name, np.full(tuple(shape), value, dtype), device, is_temp_memory)

    def _keep(
        self, name: str, array: np.ndarray[Any, Any], device: int, temporary: bool
    ) -> tv.Tensor:
        made = torch.from_numpy(array).to(self.cpudevice if device == -1 else self.gpudevice)
        view = torch_tensor_to_tv(made)
        self.allocated[view.byte_pointer()] = made
        if name and not temporary:
            self.allocated[name] = made
        return view

    def get_tensor_by_name(self, name: str) -> tv.Tensor:
        """What was made under that name."""
        return torch_tensor_to_tv(self.allocated[name])

    def free(self, ten: tv.Tensor) -> None:
        """Forget a tensor's address.

        Raises:
            ValueError: if it was not made here.
        """
        if ten.byte_pointer() not in self.allocated:
            _check.fail("ten", "one of this allocator's", "another")
        del self.allocated[ten.byte_pointer()]

    def free_noexcept(self, ten: tv.Tensor) -> None:
        """The same, in silence."""
        self.allocated.pop(ten.byte_pointer(), None)
