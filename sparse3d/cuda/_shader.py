"""The CUDA side of `sparse3d.metal._shader`: the same kernels, compiled by NVRTC and launched by
the driver on torch's current stream."""

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
        codes = [_code(p) for p in source.buffers]
        self._numbers = [i for i, code in enumerate(codes) if code == _NUMBER]
        self._pointers = [i for i, code in enumerate(codes) if code == _POINTER]
        # From behind: a list becomes entries, which moves what follows.
        self._lists = [i for i, code in enumerate(codes) if code == _LIST][::-1]
        self._arity = len(codes)
        told = hidden(source)
        self._told_groups = "groups_x" in told
        self._told_threads = sum(name.startswith("threads") for name in told)
        self._layout = struct.Struct("@" + "".join(codes) + "I" * len(told))
        self._last = struct.calcsize("@" + "".join(codes[:-1]) + "0I")
        self._packed = Packed(self._layout.size)

    def launch(
        self, args: Sequence[Argument], threads: Sequence[int], block: Sequence[int]
    ) -> None:
        """So many threads along each of 1 to 3 axes, in blocks of `block`."""
        packed = self._packed
        with packed.lock:
            blocks = self._pack(args, threads, block)
            self._driver.launch(self._function, self._device, blocks, block, packed)

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
                self._driver.launch(self._function, self._device, blocks, block, packed)

    def _pack(self, args: Sequence[Argument], threads: Sequence[int], block: Sequence[int]) -> int:
        """Lays the arguments out; returns the number of blocks."""
        blocks = across = -(-threads[0] // block[0])
        down = 1
        if len(threads) > 1:
            down = -(-threads[1] // block[1])
            blocks = across * down * (threads[2] if len(threads) > 2 else 1)
        if blocks > _MOST_BLOCKS:
            raise ValueError(f"{self.name}: blocks must number at most 2^31 - 1, got {blocks}")
        grid = (across, down) if self._told_groups else ()
        told = (*grid, *threads[: self._told_threads])
        values = self._values(args)
        try:
            self._layout.pack_into(self._packed.memory, 0, *values, *told)
        except struct.error:
            values = self._values(self._wrapped(args))
            self._layout.pack_into(self._packed.memory, 0, *values, *told)
        return blocks

    def _values(self, args: Sequence[Any]) -> list[Any]:
        """What is packed: an address for a tensor, every entry of a list."""
        values, device = list(args), self._device
        if len(values) != self._arity:
            raise TypeError(f"{self.name}: takes {self._arity} arguments, got {len(values)}")
        for i in self._pointers:
            tensor = values[i]
            try:  # isinstance costs more than all the rest
                here, whole = tensor.get_device() == device, tensor.is_contiguous()
            except AttributeError:
                kind = type(tensor).__name__
                raise TypeError(f"{self.name}: needs a tensor, got {kind}") from None
            if not here:
                raise TypeError(
                    f"{self.name}: tensors must be on cuda:{device}, got {tensor.device}"
                )
            if not whole:
                seam.check_tensor(self.name, tensor)
            values[i] = tensor.data_ptr()
        for i in self._lists:
            entries = values[i]
            values[i : i + 1] = (*entries, *_PADDING[len(entries)])
        return values

    def _wrapped(self, args: Sequence[Any]) -> list[Any]:
        """Negative scalars as the 32 bits that a kernel reads; refuses what has no 32 bits."""
        wrapped = list(args)
        for i in self._numbers:
            if not -(2**31) <= wrapped[i] < 2**32:
                raise ValueError(f"{self.name}: scalars must fit 32 bits, got {wrapped[i]}")
            wrapped[i] = int(wrapped[i]) % 2**32
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
                if (kernels, name, device) not in self._ready:
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
