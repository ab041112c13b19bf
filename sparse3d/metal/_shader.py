"""The one place that touches Metal: compiling sources, checking arguments, launching kernels.

Everything above it sees tensors and kernels by name. The test harness replaces `compile_shader` and
`device_type` and
then runs the same launch code, and the same .metal files, on CPU tensors.
"""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .._registry import BackendUnavailable

Argument = torch.Tensor | int | float | Sequence[int]

_FOLDER = Path(__file__).parent
_MAX_ROWS = 2**31 - 1
_GROUP = 256
_BUDGET = 1 << 35
"""Multiply-accumulates a dispatch: about 0.1 s on the slowest GPU, far below the watchdog's limit.
A guess: no Mac ran it."""

compile_shader: Callable[[str], Any] | None = None
device_type = "mps"
_libraries: dict[tuple[str, tuple[tuple[str, object], ...]], Any] = {}


def install(compiler: Callable[[str], Any] | None, device: str = "mps") -> None:
    """Replaces the compiler and the device whose tensors are taken; None goes back to PyTorch's."""
    global compile_shader, device_type
    compile_shader, device_type = compiler, device
    _libraries.clear()
    has_bfloat.cache_clear()


def require() -> None:
    """Raises BackendUnavailable where nothing can compile and run Metal."""
    if compile_shader is not None:
        return
    if not hasattr(torch.mps, "compile_shader"):
        raise BackendUnavailable(
            f"needs torch >= 2.7 (torch.mps.compile_shader), got {torch.__version__}"
        )
    if not torch.backends.mps.is_available():
        raise BackendUnavailable("no Metal device: torch.backends.mps.is_available() is False")


def source(stem: str) -> str:
    """The text of common.metal and STEM.metal, in one piece as `compile_shader` wants it."""
    files = (_FOLDER / "common.metal", _FOLDER / f"{stem}.metal")
    parts = [f'#line 1 "{file.name}"\n{file.read_text()}' for file in files]
    return "\n".join(parts)


def library(stem: str, **macros: object) -> Any:
    """The compiled STEM.metal, specialised by macros; compiled at the first use."""
    key = (stem, tuple(sorted(macros.items())))
    if key not in _libraries:
        compiler = compile_shader or torch.mps.compile_shader
        head = "".join(f"#define {name} {value}\n" for name, value in key[1])
        _libraries[key] = compiler(head + source(stem))
    return _libraries[key]


_BFLOAT_PROBE = """#include <metal_stdlib>
using namespace metal;
kernel void probe(device bfloat* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] =
bfloat(1.0f); }
"""


@cache
def has_bfloat() -> bool:
    """Whether this GPU's compiler takes bfloat (MSL 3.1 and Apple7 or later)."""
    try:
        (compile_shader or torch.mps.compile_shader)(_BFLOAT_PROBE)
    except (RuntimeError, SyntaxError):
        return False
    return True


_ELEMENTS = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bfloat"}


def element(dtype: torch.dtype) -> str:
    """Metal's name of a feature dtype."""
    if dtype not in _ELEMENTS:
        raise TypeError(
            f"features must be float32, float16 or bfloat16 on Metal, got {dtype}; call .float()"
        )
    return _ELEMENTS[dtype]


def takes(*tensors: torch.Tensor) -> bool:
    """Whether kernels exist for these feature dtypes."""
    return all(
        t.dtype in _ELEMENTS and (t.dtype != torch.bfloat16 or has_bfloat()) for t in tensors
    )


def packed(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as kernels read it: contiguous and at a 16-byte boundary, copied only if it is
    not."""
    tensor = tensor.detach().contiguous()
    on_cpu = tensor.device.type == "cpu"
    start = tensor.data_ptr() if on_cpu else tensor.storage_offset() * tensor.element_size()
    return tensor.clone() if start % 16 else tensor


def _checked(name: str, value: Argument) -> Argument:
    if isinstance(value, torch.Tensor):
        if value.device.type != device_type:
            raise TypeError(f"{name}: tensors must be on {device_type}, got {value.device}")
        if not value.is_contiguous():
            raise ValueError(f"{name}: tensors must be contiguous, got strides {value.stride()}")
        if value.ndim > 1 and value.shape[0] > _MAX_ROWS:
            raise ValueError(f"{name}: rows must number at most 2^31 - 1, got {value.shape[0]}")
        # Metal has no buffer for an empty tensor; kernels do not read behind a count of zero.
        return value if value.numel() else value.new_zeros(1)
    numbers = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(v, int) and not -(2**31) <= v < 2**32 for v in numbers):
        raise ValueError(f"{name}: scalars must fit 32 bits, got {value}")
    return value


def rows_fit(what: str, count: int) -> None:
    """Refuses counts that 32-bit slots cannot number."""
    if count > _MAX_ROWS:
        raise ValueError(
            f"{what} must number at most 2^31 - 1 on Metal, got {count}; split the batch"
        )


def each(kernels: Any, name: str, *args: Argument, threads: int | tuple[int, int]) -> None:
    """Launches a kernel with one thread for each element of a 1-D or 2-D range; nothing for an
    empty one."""
    grid = (threads,) if isinstance(threads, int) else threads
    if min(grid) == 0:
        return
    kernel = getattr(kernels, name)
    width = min(_GROUP, int(kernel.max_threads_per_threadgroup), -(-grid[0] // 32) * 32)
    group = (width,) + (1,) * (len(grid) - 1)
    kernel(*(_checked(name, a) for a in args), threads=grid, group_size=group)


def groups(kernels: Any, name: str, *args: Argument, count: Sequence[int], size: int) -> None:
    """Launches `count` threadgroups (1 to 3 axes) of `size` threads in a row."""
    if min(count) == 0:
        return
    kernel = getattr(kernels, name)
    if size > kernel.max_threads_per_threadgroup:
        raise RuntimeError(
            f"{name}: needs threadgroups of {size}, this GPU allows "
            f"{kernel.max_threads_per_threadgroup}; "
            "report it with the output of `sparse3d selftest`"
        )
    ones = (1,) * (len(count) - 1)
    grid = (count[0] * size, *count[1:])
    kernel(*(_checked(name, a) for a in args), threads=grid, group_size=(size, *ones))


def spans(count: int, macs_each: int) -> list[tuple[int, int]]:
    """Cuts `count` pieces of work into ranges that each stay below the budget of a dispatch."""
    step = max(1, _BUDGET // max(1, macs_each))
    return [(first, min(first + step, count)) for first in range(0, count, step)]
