"""`compile_shader` for CPU tensors: the call semantics of `torch.mps.compile_shader`, with every
access checked."""

import ctypes
import itertools
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sparse3d.cuda._source import KernelSource, MetalError, Parameter, parse_kernels

from .build import build
from .lint import lint
from .traffic import Bytes, Traffic

THREADGROUP_MEMORY = 32768
MAX_THREADS = 1024
ORDER_SHOWS = frozenset({"sp_footprint_insert", "sp_table_insert"})
"""Kernels whose output tells the order in which threads came: a slot of a hash table goes to the
first that asks."""
_GUARD = 4096
_FILL = 0xA5
_CASTS = {
    "fp16": np.float16,
    "int32": np.int32,
    "int16": np.int16,
    "int8": np.int8,
    "uint8": np.uint8,
}


@dataclass
class Options:
    """How a launch is run.

    `seed` moves on with every launch, so that no two schedules are alike. `schedules` says under
    how many a launch runs, from the same memory: all must leave the same bytes, but those of the
    kernels in `ORDER_SHOWS`. `max_threads` is the largest group that the device says it runs, of
    any kernel. `meter` counts bytes."""

    seed: int = 0
    schedules: int = 1
    max_threads: int = MAX_THREADS
    meter: bool = True
    lenient: bool = False
    spurious: bool = True
    interleave: bool = True


@dataclass
class _Argument:
    """Memory of one argument. Arrays are copied between guard bytes, which catch and survive
    overruns."""

    parameter: Parameter
    memory: np.ndarray
    offset: int
    size: int
    granule: int
    source: torch.Tensor | None = None

    @property
    def address(self) -> int:
        return self.memory.ctypes.data + self.offset

    def intact(self) -> bool:
        before, after = self.memory[: self.offset], self.memory[self.offset + self.size :]
        return self.source is None or bool((before == _FILL).all() and (after == _FILL).all())

    def restore(self, before: np.ndarray) -> None:
        self.memory[:] = before

    def written(self) -> bytes:
        if self.source is None or self.parameter.read_only:
            return b""
        return self.memory[self.offset : self.offset + self.size].tobytes()

    def copy_back(self) -> None:
        if self.source is not None and not self.parameter.read_only:
            _bytes(self.source)[:] = self.memory[self.offset : self.offset + self.size]


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor, without a detour through torch's views, which take longer
    than a small launch."""
    size = tensor.numel() * tensor.element_size()
    return np.frombuffer((ctypes.c_uint8 * size).from_address(tensor.data_ptr()), np.uint8)


def _tensor_argument(kernel: str, p: Parameter, tensor: torch.Tensor) -> _Argument:
    if tensor.device.type != "cpu":
        raise MetalError(
            f"{kernel}: {p.name} must be a CPU tensor in the emulator, got {tensor.device}"
        )
    if p.indirection != "*":
        raise MetalError(f"{kernel}: tensor passed for scalar {p.name}")
    if not tensor.is_contiguous():
        raise MetalError(
            f"{kernel}: {p.name} is not contiguous (strides are not passed to kernels)"
        )
    if tensor.numel() == 0:
        raise MetalError(f"{kernel}: {p.name} is empty and has no buffer")
    size = tensor.numel() * tensor.element_size()
    memory = np.empty(size + 2 * _GUARD + 64, np.uint8)
    # The buffer keeps the tensor's alignment, so that a misaligned view is as misaligned here as on
    # the GPU.
    offset = _GUARD + (tensor.data_ptr() - memory.ctypes.data - _GUARD) % 64
    memory[:offset], memory[offset + size :] = _FILL, _FILL
    memory[offset : offset + size] = _bytes(tensor)
    return _Argument(p, memory, offset, size, tensor.element_size(), tensor)


def _scalar_argument(p: Parameter, value: Any, cast: str | None) -> _Argument:
    encoded = np.asarray(value)
    if encoded.size == 0:
        raise MetalError(f"{p.name}: an empty list has no encoding")
    encoded = encoded.astype(np.float32 if encoded.dtype.kind == "f" else np.int64)
    if cast:
        encoded = encoded.astype(_CASTS[cast])
    memory = np.ascontiguousarray(encoded).reshape(-1).view(np.uint8)
    return _Argument(p, memory, 0, memory.size, 1)


def _refuse_aliases(kernel: str, held: list[_Argument]) -> None:
    """Arguments are copied one by one, so a written tensor must not be passed twice. (Metal would
    allow it.)"""
    spans = []
    for a in held:
        if a.source is not None:
            start = a.source.data_ptr()
            spans.append((start, start + a.size, a.parameter))
    spans.sort(key=lambda s: s[:2])
    for (_, end, p), (start, _, q) in itertools.pairwise(spans):
        if start < end and not (p.read_only and q.read_only):
            raise MetalError(f"{kernel}: {p.name} and {q.name} overlap and one of them is written")


def _sizes(
    threads: int | Sequence[int], group_size: int | Sequence[int] | None, most: int
) -> tuple[list[int], list[int]]:
    grid = [threads] if isinstance(threads, int) else list(threads)
    if group_size is None:
        group = [min(grid[0], most)] if len(grid) == 1 else [most, *[1] * (len(grid) - 1)]
    else:
        group = [group_size] if isinstance(group_size, int) else list(group_size)
    if len(group) != len(grid):
        raise MetalError("threads and group_size must have the same rank")
    if np.prod(group) > most:
        raise ValueError(f"Threadgroup size exceeds {most} limit")
    if min(grid) < 1 or max(grid) >= 1 << 32:
        raise MetalError(f"a grid must have 1 to 2^32 - 1 threads along each axis, got {grid}")
    return [*grid, 1, 1][:3], [*group, 1, 1][:3]


class Kernel:
    """One kernel of a library. `traffic` is what the last launch moved, in checked builds."""

    thread_execution_width = 32

    def __init__(self, library: "Library", source: KernelSource):
        self._library = library
        self._source = source
        self.traffic: Traffic | None = None

    @property
    def max_threads_per_threadgroup(self) -> int:
        return self._library.options.max_threads

    @property
    def static_thread_group_memory_length(self) -> int:
        return sum(
            size for _, size, _ in self._library.threadgroup_arrays.get(self._source.name, [])
        )

    def __call__(
        self,
        *args: Any,
        threads: int | Sequence[int] | None = None,
        group_size: int | Sequence[int] | None = None,
        arg_casts: str | dict[int, str] | None = None,
    ) -> None:
        name, buffers = self._source.name, self._source.buffers
        if len(buffers) != len(args):
            raise MetalError(f"{name} takes {len(buffers)} arguments, got {len(args)}")
        held = []
        for p, value in zip(buffers, args, strict=True):
            if isinstance(value, torch.Tensor):
                held.append(_tensor_argument(name, p, value))
            else:
                cast = arg_casts if isinstance(arg_casts, str) else (arg_casts or {}).get(p.index)
                held.append(_scalar_argument(p, value, cast))
        if threads is None:
            threads = next(a.source.numel() for a in held if a.source is not None)
        _refuse_aliases(name, held)
        faults = self._run(held, *_sizes(threads, group_size, self.max_threads_per_threadgroup))
        for argument in held:
            argument.copy_back()
        if self._library.check and self._library.options.meter:
            self.traffic = self._library.read_traffic(name, held)
            self._library.log.append(self.traffic)
        if faults:
            raise MetalError(f"{name}: faults\n{faults}")

    def _run(self, held: list[_Argument], grid: list[int], group: list[int]) -> str:
        """Runs the dispatch under every schedule asked for; the text of all faults."""
        name, schedules = self._source.name, self._library.options.schedules
        before = [a.memory.copy() for a in held] if schedules > 1 else []
        faults, first = "", None
        for count in range(schedules):
            for argument, memory in zip(held, before, strict=False):
                argument.restore(memory)
            faults += self._library.launch(name, held, grid, group)
            for argument in held:
                if not argument.intact():
                    faults += f"guard bytes of {argument.parameter.name} were overwritten\n"
            if schedules == 1 or name in ORDER_SHOWS:
                continue
            left = [argument.written() for argument in held]
            for argument, one, other in zip(held, first or left, left, strict=True):
                if one != other:
                    faults += f"{argument.parameter.name} differs under schedule {count + 1}\n"
            first = left
        return faults


@dataclass
class Library:
    """A compiled source. Kernels are its attributes, as of what `torch.mps.compile_shader`
    returns."""

    text: str
    front: str
    check: bool = True
    options: Options = field(default_factory=Options)
    log: list[Traffic] = field(default_factory=list)

    def __post_init__(self) -> None:
        complaints = lint(self.text)
        if complaints:
            raise SyntaxError("\n".join(complaints))
        kernels = parse_kernels(self.text)
        self._path = build(self.text, kernels, self.front, self.check)
        self._c = ctypes.CDLL(str(self._path))
        self._c.rt_launch.restype = ctypes.c_uint64
        self._read_symbols({k.name for k in kernels})
        self.kernels = {k.name: Kernel(self, k) for k in kernels}

    def _read_symbols(self, kernels: set[str]) -> None:
        """Finds the threadgroup arrays, which are static variables of the library."""
        listed = subprocess.run(
            ["nm", "-S", "-C", self._path], capture_output=True, text=True, check=True
        ).stdout
        symbols = re.findall(r"^([0-9a-f]{16}) ([0-9a-f]{16}) (\w) (.+)$", listed, re.MULTILINE)
        launch = next(int(address, 16) for address, _, _, name in symbols if name == "rt_launch")
        self._base = ctypes.cast(self._c.rt_launch, ctypes.c_void_p).value - launch
        self.threadgroup_arrays: dict[str, list[tuple[int, int, str]]] = {}
        self._guards = []
        for address, size, kind, name in symbols:
            place = (self._base + int(address, 16), int(size, 16))
            match = re.match(r"(?:metal::)?(\w+)(?:\(.*\))?(?:\.|::)(\w+)$", name)
            if name.startswith("guard variable"):
                self._guards.append(place)
            elif match and kind in "bBdD" and match.group(1) in kernels:
                self.threadgroup_arrays.setdefault(match.group(1), []).append(
                    (*place, match.group(2))
                )
        for kernel, arrays in self.threadgroup_arrays.items():
            total = sum(size for _, size, _ in arrays)
            if total > THREADGROUP_MEMORY:
                raise MetalError(
                    f"{kernel}: {total} bytes of threadgroup memory, "
                    f"the limit is {THREADGROUP_MEMORY}"
                )

    def _declare(self, kernel: str, held: list[_Argument]) -> None:
        pointer = ctypes.c_size_t
        self._c.rt_clear()
        for a in held:
            name = a.parameter.name.encode()
            read_only = a.source is None or a.parameter.read_only
            self._c.rt_region(
                pointer(a.address), pointer(a.size), a.granule, 0, name, int(read_only)
            )
        for low, size, name in self.threadgroup_arrays.get(kernel, []):
            self._c.rt_region(pointer(low), pointer(size), 2, 1, name.encode(), 0)
        for low, size in self._guards:
            self._c.rt_ignore(pointer(low), pointer(size))

    def launch(self, kernel: str, held: list[_Argument], grid: list[int], group: list[int]) -> str:
        """Runs a dispatch and returns the text of its faults."""
        o = self.options
        self._declare(kernel, held)
        self._c.rt_options(int(o.spurious), int(o.interleave), int(o.meter))
        triple = ctypes.c_uint64 * 3
        faults = self._c.rt_launch(
            ctypes.cast(getattr(self._c, f"emu_call_{kernel}"), ctypes.c_void_p),
            (ctypes.c_void_p * len(held))(*(a.address for a in held)),
            triple(*grid),
            triple(*group),
            int(self.check),
            int(o.lenient),
            ctypes.c_uint64(o.seed),
        )
        o.seed += 1
        if not faults:
            return ""
        text = ctypes.create_string_buffer(1 << 16)
        self._c.rt_messages(text, len(text))
        return re.sub(r"@pc=(0x[0-9a-f]+)", self._place, text.value.decode())

    def _place(self, match: re.Match[str]) -> str:
        address = hex(int(match.group(1), 16) - self._base - 1)
        found = subprocess.run(
            ["addr2line", "-e", self._path, address], capture_output=True, text=True, check=True
        ).stdout.strip()
        return f"at {Path(found.split(' (')[0]).name}"

    def read_traffic(self, kernel: str, held: list[_Argument]) -> Traffic:
        """Counters of the launch just made."""
        out = (ctypes.c_uint64 * 5)()
        names = [(a.parameter.name, "constant" if a.source is None else "device") for a in held]
        names += [(name, "threadgroup") for _, _, name in self.threadgroup_arrays.get(kernel, [])]
        buffers = {}
        for i, (name, space) in enumerate(names):
            self._c.rt_meter(i, out)
            read, merged, written, atomics, touched = out
            touched = 0 if space == "threadgroup" else touched
            buffers[name] = Bytes(space, read, merged, written, atomics, touched)
        self._c.rt_meter(-1, out)
        return Traffic(kernel, *out, buffers)

    def __getattr__(self, name: str) -> Kernel:
        kernels = self.__dict__.get("kernels", {})
        if name in kernels:
            return kernels[name]
        if name.startswith("_"):
            raise AttributeError(name)
        raise RuntimeError(f"Failed to create function state object for: {name}")

    def __dir__(self) -> list[str]:
        return list(self.kernels)


def compile_shader(text: str, front: str = "gcc", check: bool = True, **options: Any) -> Library:
    """What `torch.mps.compile_shader` does, for the emulator."""
    return Library(text, front, check, Options(**options))
