"""The one place that touches a GPU: kernels by name, checked arguments, launches.

The launch modules name kernels and pass tensors; a `Launcher`, chosen by the device of the first
tensor, compiles and launches. This module has the one for Metal. `sparse3d.cuda` installs another
for NVIDIA GPUs, and the test harness one for CPU tensors, under the same .metal files.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch

from .._registry import BackendUnavailable

Argument = torch.Tensor | int | float | Sequence[int]

MAX_ROWS = 2**31 - 1
SIMDGROUP = 32
_FOLDER = Path(__file__).parent
_GROUP = 256
_BUDGET = 1 << 35
"""Multiply-accumulates a dispatch: about 0.1 s on the slowest GPU, far below the watchdog's limit.
A guess: no Mac ran it."""


def source(stem: str) -> str:
    """The text of common.metal and STEM.metal, in one piece as `compile_shader` wants it."""
    files = (_FOLDER / "common.metal", _FOLDER / f"{stem}.metal")
    parts = [f'#line 1 "{file.name}"\n{file.read_text()}' for file in files]
    return "\n".join(parts)


class Library:
    """STEM.metal under some macros. Launchers compile it when a kernel of it first runs."""

    def __init__(self, stem: str, macros: dict[str, Any]) -> None:
        self.stem, self.macros = stem, macros

    def text(self) -> str:
        """Macros and source."""
        head = "".join(f"#define {name} {value}\n" for name, value in sorted(self.macros.items()))
        return head + source(self.stem)


@cache
def library(stem: str, **macros: object) -> Library:
    """STEM.metal, specialised by macros; one object for equal arguments."""
    return Library(stem, macros)


class Launcher(Protocol):
    """Compiles and launches on the devices of one type. `grid` and `count` have no zeros."""

    def each(
        self, kernels: Library, name: str, args: tuple[Argument, ...], grid: tuple[int, ...]
    ) -> None:
        """One thread for each element of a 1-D or 2-D range."""

    def groups(
        self,
        kernels: Library,
        name: str,
        args: tuple[Argument, ...],
        count: Sequence[int],
        size: int,
    ) -> None:
        """`count` threadgroups (1 to 3 axes) of `size` threads in a row."""

    def series(
        self,
        kernels: Library,
        name: str,
        args: tuple[Argument, ...],
        values: range,
        count: Sequence[int],
        size: int,
    ) -> None:
        """As `groups`, once for each value, which is the kernel's last argument."""

    def has_bfloat(self) -> bool:
        """Whether its compiler takes bfloat."""


_BFLOAT_PROBE = """#include <metal_stdlib>
using namespace metal;
kernel void probe(device bfloat* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] =
bfloat(1.0f); }
"""


class MetalLauncher:
    """Through `torch.mps.compile_shader`, or what stands in for it on another device."""

    def __init__(self, compiler: Callable[[str], Any], device_type: str) -> None:
        self._compiler, self._device_type = compiler, device_type
        self._compiled: dict[Library, Any] = {}
        self._bfloat: bool | None = None

    def _kernel(self, kernels: Library, name: str) -> Any:
        if kernels not in self._compiled:
            self._compiled[kernels] = self._compiler(kernels.text())
        return getattr(self._compiled[kernels], name)

    def each(
        self, kernels: Library, name: str, args: tuple[Argument, ...], grid: tuple[int, ...]
    ) -> None:
        """As `Launcher.each`."""
        kernel = self._kernel(kernels, name)
        width = min(_GROUP, self.most_threads(kernels, name), -(-grid[0] // 32) * 32)
        group = (width,) + (1,) * (len(grid) - 1)
        kernel(*(self._checked(name, a) for a in args), threads=grid, group_size=group)

    def groups(
        self,
        kernels: Library,
        name: str,
        args: tuple[Argument, ...],
        count: Sequence[int],
        size: int,
    ) -> None:
        """As `Launcher.groups`."""
        kernel = self._kernel(kernels, name)
        refuse_large_groups(name, size, self.most_threads(kernels, name))
        ones = (1,) * (len(count) - 1)
        grid = (count[0] * size, *count[1:])
        checked = (self._checked(name, a) for a in args)
        kernel(*checked, threads=grid, group_size=(size, *ones))

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
        for value in values:
            self.groups(kernels, name, (*args, value), count, size)

    def most_threads(self, kernels: Library, name: str) -> int:
        """The largest group of whole simdgroups that this GPU runs of a kernel: it depends on the
        registers that the kernel takes."""
        return int(self._kernel(kernels, name).max_threads_per_threadgroup) // SIMDGROUP * SIMDGROUP

    def has_bfloat(self) -> bool:
        """Whether this GPU's compiler takes bfloat (MSL 3.1 and Apple7 or later)."""
        if self._bfloat is None:
            try:
                self._compiler(_BFLOAT_PROBE)
                self._bfloat = True
            except (RuntimeError, SyntaxError):
                self._bfloat = False
        return self._bfloat

    def _checked(self, name: str, value: Argument) -> Argument:
        if isinstance(value, torch.Tensor):
            if value.device.type != self._device_type:
                raise TypeError(
                    f"{name}: tensors must be on {self._device_type}, got {value.device}"
                )
            check_tensor(name, value)
            # Metal has no buffer for an empty tensor; kernels do not read behind a count of zero.
            return value if value.numel() else value.new_zeros(1)
        numbers = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(v, int) and not -(2**31) <= v < 2**32 for v in numbers):
            raise ValueError(f"{name}: scalars must fit 32 bits, got {value}")
        return value


def check_tensor(name: str, value: torch.Tensor) -> None:
    """Refuses what kernels cannot index."""
    if not value.is_contiguous():
        raise ValueError(f"{name}: tensors must be contiguous, got strides {value.stride()}")
    if value.ndim > 1 and value.shape[0] > MAX_ROWS:
        raise ValueError(f"{name}: rows must number at most 2^31 - 1, got {value.shape[0]}")


def refuse_large_groups(name: str, size: int, most: int) -> None:
    """Refuses threadgroups that this GPU cannot run."""
    if size > most:
        raise RuntimeError(
            f"{name}: needs threadgroups of {size}, this GPU allows {most}; "
            "report it with the output of `sparse3d selftest`"
        )


_launchers: dict[str, Launcher] = {}


def install(device_type: str, launcher: Launcher | None) -> Launcher | None:
    """Puts a launcher under the kernels for tensors of a device type, None for none.

    Returns:
        The one that was there.
    """
    before = _launchers.pop(device_type, None)
    if launcher is not None:
        _launchers[device_type] = launcher
    return before


def launcher(device_type: str) -> Launcher:
    """What launches on devices of this type; the one for Metal is made here."""
    if device_type not in _launchers:
        if device_type != "mps":
            known = ", ".join(sorted({"mps", *_launchers}))
            raise TypeError(f"tensors must be on {known}, got {device_type}")
        _launchers["mps"] = MetalLauncher(torch.mps.compile_shader, "mps")
    return _launchers[device_type]


def require() -> None:
    """Raises BackendUnavailable where nothing can compile and run Metal."""
    if _launchers.keys() & {"cpu", "mps"}:
        return
    if not hasattr(torch.mps, "compile_shader"):
        raise BackendUnavailable(
            f"needs torch >= 2.7 (torch.mps.compile_shader), got {torch.__version__}"
        )
    if not torch.backends.mps.is_available():
        raise BackendUnavailable("no Metal device: torch.backends.mps.is_available() is False")


_ELEMENTS = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}


def element(dtype: torch.dtype) -> str:
    """Metal's name of a feature dtype."""
    if dtype not in _ELEMENTS:
        raise TypeError(
            f"features must be float32, float16 or bfloat16 in GPU kernels, got {dtype}; "
            "call .float()"
        )
    return _ELEMENTS[dtype]


def takes(*tensors: torch.Tensor) -> bool:
    """Whether kernels exist for these feature dtypes."""
    return all(
        t.dtype in _ELEMENTS and (t.dtype != torch.bfloat16 or launcher(t.device.type).has_bfloat())
        for t in tensors
    )


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as kernels read it: contiguous and at a 16-byte boundary, copied only if it is
    not."""
    tensor = tensor.detach().contiguous()
    on_mps = tensor.device.type == "mps"
    start = tensor.storage_offset() * tensor.element_size() if on_mps else tensor.data_ptr()
    return tensor.clone() if start % 16 else tensor


def rows_fit(what: str, count: int) -> None:
    """Refuses counts that 32-bit slots cannot number."""
    if count > MAX_ROWS:
        raise ValueError(
            f"{what} must number at most 2^31 - 1 in GPU kernels, got {count}; split the batch"
        )


def _launcher_for(first: Any) -> Launcher:
    kind = first.device.type
    return _launchers.get(kind) or launcher(kind)


def each(kernels: Library, name: str, *args: Argument, threads: int | tuple[int, int]) -> None:
    """Launches a kernel with one thread for each element of a 1-D or 2-D range; nothing for an
    empty one. The first argument is a tensor, whose device chooses the launcher."""
    grid = (threads,) if isinstance(threads, int) else threads
    if min(grid) > 0:
        _launcher_for(args[0]).each(kernels, name, args, grid)


def groups(kernels: Library, name: str, *args: Argument, count: Sequence[int], size: int) -> None:
    """Launches `count` threadgroups (1 to 3 axes) of `size` threads in a row."""
    if min(count) > 0:
        _launcher_for(args[0]).groups(kernels, name, args, count, size)


def series(
    kernels: Library,
    name: str,
    *args: Argument,
    values: range,
    count: Sequence[int],
    size: int,
) -> None:
    """As `groups`, once for each value, which is the kernel's last argument. The other arguments
    are looked at once."""
    if min(count) > 0:
        _launcher_for(args[0]).series(kernels, name, args, values, count, size)


def largest_group(like: torch.Tensor, kernels: Library, name: str, size: int) -> int:
    """`size`, or less where this GPU allows a kernel less; for kernels that take any number of
    whole simdgroups. NVIDIA GPUs run every size asked for here."""
    found = _launcher_for(like)
    if not isinstance(found, MetalLauncher):
        return size
    return min(size, found.most_threads(kernels, name))


def first_that_fits(
    like: torch.Tensor, name: str, choices: Iterable[tuple[Library, int]]
) -> tuple[Library, int]:
    """The first kernel and group size that this GPU runs; the last where it runs none, so that the
    launch tells. For kernels that are compiled for a size."""
    for choice in choices:
        kernels, size = choice
        if largest_group(like, kernels, name, size) == size:
            break
    return choice


def spans(count: int, macs_each: int) -> list[tuple[int, int]]:
    """Cuts `count` pieces of work into ranges that each stay below the budget of a dispatch."""
    step = max(1, _BUDGET // max(1, macs_each))
    return [(first, min(first + step, count)) for first in range(0, count, step)]
