"""The CUDA driver through ctypes: loading machine code and launching it, a few microseconds a
call."""

import ctypes
import struct
import threading
from collections.abc import Sequence

import torch

_MAX_THREADS_PER_BLOCK = 0  # of CUfunction_attribute
_INVALID_CONTEXT = 201
_END, _BUFFER, _BUFFER_SIZE = 0, 1, 2  # CU_LAUNCH_PARAM_*
_CONFIG = struct.Struct("@7IPPI")
"""CUlaunchConfig: blocks and threads along three axes, shared bytes, stream, attributes, their
number."""


class Packed:
    """Memory for a kernel's arguments, laid out as the kernel declares them.

    A launch fills it and hands it over while `lock` is held: the driver copies it before it
    returns.
    """

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        self.memory = ctypes.create_string_buffer(max(size, 1))
        self.config = ctypes.create_string_buffer(_CONFIG.size)
        self._size = ctypes.c_size_t(size)
        address, length = ctypes.addressof(self.memory), ctypes.addressof(self._size)
        self._extra = (ctypes.c_void_p * 5)(_BUFFER, address, _BUFFER_SIZE, length, _END)
        self.config_address = ctypes.addressof(self.config)
        self.extra_address = ctypes.addressof(self._extra)


class Driver:
    """libcuda.so.1.

    Raises:
        OSError: if it does not load.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        # Four pointers cost ctypes a third of the eleven arguments that cuLaunchKernel has.
        self._launch = self._library.cuLaunchKernelEx
        self._launch.argtypes = [ctypes.c_void_p] * 4
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._call("cuInit", 0)

    def load(self, image: bytes, device: int) -> ctypes.c_void_p:
        """A module on a device, from machine code or PTX."""
        module = ctypes.c_void_p()
        with torch.cuda.device(device):
            self._enter(device)
            self._call("cuModuleLoadData", ctypes.byref(module), image)
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> tuple[int, int]:
        """A kernel's handle, and the most threads a block of it may have."""
        found, most = ctypes.c_void_p(), ctypes.c_int()
        self._call("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
        self._call("cuFuncGetAttribute", ctypes.byref(most), _MAX_THREADS_PER_BLOCK, found)
        return int(found.value or 0), most.value

    def launch(
        self, function: int, device: int, blocks: int, block: Sequence[int], packed: Packed
    ) -> None:
        """On the device's current stream, with the arguments in `packed`, whose lock is held."""
        stream = torch._C._cuda_getCurrentRawStream(device)
        _CONFIG.pack_into(packed.config, 0, blocks, 1, 1, *block, 0, stream, 0, 0)
        if torch._C._cuda_getDevice() == device:
            code = self._launch(packed.config_address, function, None, packed.extra_address)
            if not code:
                return
            if code != _INVALID_CONTEXT:
                self._refuse("cuLaunchKernelEx", code)
        with torch.cuda.device(device):  # a thread that has not used the device before, or another
            self._enter(device)
            code = self._launch(packed.config_address, function, None, packed.extra_address)
        if code:
            self._refuse("cuLaunchKernelEx", code)

    def _enter(self, device: int) -> None:
        """Makes torch's own context the current one of this thread."""
        if device not in self._contexts:
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device] = context
        self._call("cuCtxSetCurrent", self._contexts[device])

    def _call(self, name: str, *args: object) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            self._refuse(name, code)

    def _refuse(self, name: str, code: int) -> None:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(code, ctypes.byref(text))
        reason = (text.value or b"unknown error").decode()
        raise RuntimeError(f"{name} failed: {reason} (CUDA driver error {code})")
