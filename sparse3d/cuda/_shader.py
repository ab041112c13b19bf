"""The CUDA side of `sparse3d.metal._shader`: the same kernels, compiled by NVRTC and launched by
the driver on torch's current stream."""

import math
import struct
import sys
import threading
from collections.abc import Sequence
from typing import Any

import torch

from .._registry import BackendUnavailable
from .._version import __version__
from ..metal import _shader as seam
from ..metal._shader import Argument, Library
from . import _nvrtc
from ._cache import Cache, key, user_folder
from ._driver import Driver, Packed
from ._source import KernelSource, Parameter, parse_kernels
from ._translate import LIST, cuda_source, hidden

_THREADS = 256
_MOST_BLOCKS = 2**31 - 1
_POINTER, _LIST, _NUMBER = "P", f"{LIST}q", "I"
_PADDING = [(0,) * (LIST - used) for used in range(LIST + 1)]
_SCALARS = {"uint": _NUMBER, "int": _NUMBER, "float": "f"}


def require() -> None:
    """Raises BackendUnavailable where no NVIDIA GPU can be used."""
    if sys.platform != "linux":
        raise BackendUnavailable(f"needs Linux, got {sys.platform}")
    if torch.version.cuda is None:
        raise BackendUnavailable(f"this torch is built without CUDA: {torch.__version__}")
    if not torch.cuda.is_available():
        raise BackendUnavailable("no NVIDIA GPU: torch.cuda.is_available() is False")
    _nvrtc.compiler()


def install() -> None:
    """Puts NVRTC and the driver under the kernels for CUDA tensors."""
    seam.install("cuda", CudaLauncher(Driver(), _nvrtc.compiler(), Cache(user_folder())))


def _code(p: Parameter) -> str:
    """How `struct` packs a buffer of a kernel."""
    if p.indirection == "*":
        return _LIST if "constant" in p.type.split() else _POINTER
    return _SCALARS[p.type.split()[-1]]


class Kernel:
    """A kernel on a device, ready to be launched."""

    def __init__(
        self, driver: Driver, function: int, most_threads: int, device: int, source: KernelSource
    ) -> None:
        self.name, self.most_threads = source.name, most_threads
        self._driver, self._function, self._device = driver, function, device
        self._codes = [_code(p) for p in source.buffers]
        told = hidden(source)
        self._told_groups = "groups_x" in told
        self._told_threads = sum(name.startswith("threads") for name in told)
        layout = struct.Struct("@" + "".join(self._codes) + "I" * len(told))
        self._layout, self._packed = layout, Packed(layout.size)
        self._last = struct.calcsize("@" + "".join(self._codes[:-1]) + "0I")

    def launch(
        self, args: Sequence[Argument], threads: Sequence[int], block: Sequence[int]
    ) -> None:
        """So many threads along each of 1 to 3 axes, in blocks of `block`."""
        packed = self._packed
        with packed.lock:
            blocks = self._pack(args, threads, block)
            self._driver.launch(self._function, self._device, blocks, block, packed.extra)

    def launch_each(
        self,
        args: Sequence[Argument],
        values: range,
        threads: Sequence[int],
        block: Sequence[int],
    ) -> None:
        """Once for each value of the last argument; the others are packed once."""
        packed, place = self._packed, self._last
        with packed.lock:
            blocks = self._pack((*args, values[0]), threads, block) if values else 0
            for value in values:
                struct.pack_into("I", packed.memory, place, value)
                self._driver.launch(self._function, self._device, blocks, block, packed.extra)

    def _pack(self, args: Sequence[Argument], threads: Sequence[int], block: Sequence[int]) -> int:
        """Lays the arguments out; returns the number of blocks."""
        count = [-(-t // b) for t, b in zip(threads, block, strict=False)]
        blocks = math.prod(count)
        if blocks > _MOST_BLOCKS:
            raise ValueError(f"{self.name}: blocks must number at most 2^31 - 1, got {blocks}")
        grid = [count[0], count[1] if len(count) > 1 else 1] if self._told_groups else []
        grid.extend(threads[: self._told_threads])
        values = self._values(args)
        try:
            self._layout.pack_into(self._packed.memory, 0, *values, *grid)
        except struct.error:
            values = self._values(self._wrapped(args))
            self._layout.pack_into(self._packed.memory, 0, *values, *grid)
        return blocks

    def _values(self, args: Sequence[Any]) -> list[Any]:
        """What is packed: an address for a tensor, every entry of a list."""
        values: list[Any] = []
        for code, arg in zip(self._codes, args, strict=True):
            if code is _POINTER:
                values.append(self._address(arg))
            elif code is _LIST:
                values.extend(arg)
                values.extend(_PADDING[len(arg)])
            else:
                values.append(arg)
        return values

    def _address(self, arg: Any) -> int:
        if not isinstance(arg, torch.Tensor):
            raise TypeError(f"{self.name}: a tensor is needed, got {type(arg).__name__}")
        if arg.get_device() != self._device:
            raise TypeError(
                f"{self.name}: tensors must be on cuda:{self._device}, got {arg.device}"
            )
        if not arg.is_contiguous() or arg.numel() > seam.MAX_ROWS:
            seam.check_tensor(self.name, arg)
        return arg.data_ptr()

    def _wrapped(self, args: Sequence[Any]) -> list[Any]:
        """Negative scalars as the 32 bits that a kernel reads; refuses what has no 32 bits."""
        wrapped = []
        for code, arg in zip(self._codes, args, strict=True):
            if code is _NUMBER and not -(2**31) <= arg < 2**32:
                raise ValueError(f"{self.name}: scalars must fit 32 bits, got {arg}")
            wrapped.append(int(arg) % 2**32 if code is _NUMBER else arg)
        return wrapped


class CudaLauncher:
    """The launcher of `sparse3d.metal._shader` for CUDA tensors. Every device has modules of its
    own."""

    def __init__(self, driver: Driver, compiler: _nvrtc.Compiler, cache: Cache) -> None:
        self._driver, self._compiler, self._cache = driver, compiler, cache
        self._ready: dict[tuple[Library, str, int], Kernel] = {}
        self._lock = threading.Lock()

    def each(
        self, kernels: Library, name: str, args: tuple[Argument, ...], grid: tuple[int, ...]
    ) -> None:
        """As `Launcher.each`. Blocks of 256 threads, narrow where the range is narrow."""
        kernel = self._kernel(kernels, name, args)
        threads = min(_THREADS, kernel.most_threads)
        width = threads if len(grid) == 1 else min(threads, 1 << (grid[0] - 1).bit_length())
        kernel.launch(args, grid, (width, threads // width, 1))

    def groups(
        self,
        kernels: Library,
        name: str,
        args: tuple[Argument, ...],
        count: Sequence[int],
        size: int,
    ) -> None:
        """As `Launcher.groups`."""
        kernel = self._kernel(kernels, name, args)
        seam.refuse_large_groups(name, size, kernel.most_threads)
        kernel.launch(args, (count[0] * size, *count[1:]), (size, 1, 1))

    def series(
        self,
        kernels: Library,
        name: str,
        args: tuple[Argument, ...],
        values: range,
        count: Sequence[int],
        size: int,
    ) -> None:
        """As `Launcher.series`."""
        kernel = self._kernel(kernels, name, args)
        seam.refuse_large_groups(name, size, kernel.most_threads)
        kernel.launch_each(args, values, (count[0] * size, *count[1:]), (size, 1, 1))

    def has_bfloat(self) -> bool:
        """The dialect brings its own."""
        return True

    def image(self, kernels: Library, capability: int) -> bytes:
        """Machine code of a library for GPUs of a capability, from disk or compiled and kept."""
        text = kernels.text()
        return self._image(cuda_source(text, parse_kernels(text)), capability)

    def _image(self, text: str, capability: int) -> bytes:
        target = self._compiler.target(capability)
        name = key(text, target, self._compiler.version, __version__, *_nvrtc.OPTIONS)
        image = self._cache.get(name)
        if image is None:
            image = self._compiler.compile(text, target)
            self._cache.put(name, image)
        return image

    def _kernel(self, kernels: Library, name: str, args: tuple[Argument, ...]) -> Kernel:
        device: int = args[0].get_device()  # type: ignore[union-attr]
        found = self._ready.get((kernels, name, device))
        if found is None:
            with self._lock:
                self._load(kernels, device)
            found = self._ready[kernels, name, device]
        return found

    def _load(self, kernels: Library, device: int) -> None:
        text = kernels.text()
        sources = parse_kernels(text)
        major, minor = torch.cuda.get_device_capability(device)
        module = self._driver.load(
            self._image(cuda_source(text, sources), 10 * major + minor), device
        )
        for source in sources:
            function, most = self._driver.function(module, f"{source.name}_entry")
            kernel = Kernel(self._driver, function, most, device, source)
            self._ready[kernels, source.name, device] = kernel
