"""The native library: found, checked, called.

`libsparse3d_cpu.so` has a plain C ABI (no libtorch, no Python), so that one build serves every
torch and Python. Tensors go in as addresses; the thread count goes in with every call.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .._registry import BackendUnavailable

ABI_VERSION = 3
DISTRIBUTION = "sparse3d-torch"
FILE = "libsparse3d_cpu.so"

# Numbers of csrc/dispatch.h and csrc/common.h.
PATHS = {"auto": 0, "portable": 1, "avx2": 2, "avx512": 3, "avx512_bf16": 6, "amx": 4, "neon": 5}
ACTIVATIONS = {"none": 0, "relu": 1, "leaky_relu": 2, "sigmoid": 3}
DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}

_OUT_OF_MEMORY = 1

_P, _I32, _I64, _F64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_double


def _fields(kind: type[Any], names: str) -> list[tuple[str, type[Any]]]:
    return [(name, kind) for name in names.split()]


class ConvCall(ctypes.Structure):
    """Mirror of csrc/conv.h."""

    _fields_ = [
        *_fields(_I32, "threads path dtype activation"),
        *_fields(_P, "x w scale bias residual y in_rows out_rows splits"),
        *_fields(_I64, "ldx ldy ldr w_group w_tap w_in w_out"),
        *_fields(_I64, "channels_in channels_out groups taps num_out flags identity"),
        ("alpha", ctypes.c_double),
    ]


class WeightGradCall(ctypes.Structure):
    """Mirror of csrc/conv.h."""

    _fields_ = [
        *_fields(_I32, "threads path dtype reserved"),
        *_fields(_P, "x g dw in_rows out_rows splits sorted"),
        *_fields(_I64, "ldx ldg channels_in channels_out groups taps sorted_rows"),
    ]


class NormCall(ctypes.Structure):
    """Mirror of csrc/norm.h."""

    _fields_ = [
        *_fields(_I32, "threads path dtype relu"),
        *_fields(_P, "x weight bias side grad y mean var dweight dbias dside"),
        *_fields(_I64, "rows channels"),
        ("eps", _F64),
    ]


_LISTS = [_P, _P, _P, _P]  # kernel size, stride, padding, dilation
_SIGNATURES: dict[str, list[Any]] = {
    "s3d_coordinate_table": [_I32, _P, _I64, _I32, _P],
    "s3d_coordinate_lookup": [_I32, _P, _I64, _I32, _P, _P, _I64, _P],
    "s3d_coordinate_unique": [_I32, _P, _I64, _I32, _P, _P, _P],
    "s3d_map_submanifold": [_I32, _I32, _P, _I64, _I32, _P, _P, _P, _P],
    "s3d_map_given": [_I32, _I32, _P, _I64, _I32, _P, _P, _I64, *_LISTS, _P],
    "s3d_map_footprint": [_I32, _I32, _P, _I64, _I32, *_LISTS, _P, _I32, _P],
    "s3d_map_floor": [_I32, _I32, _P, _I64, _I32, _P, *_LISTS, _P],
    "s3d_map_take": [_I32, _P, _P, _P, _P, _P],
    "s3d_pairs_inspect": [_I32, _P, _P, _P, _I64, _I64, _I64, _I32, _P],
    "s3d_pairs_sort": [_I32, _P, _P, _P, _I64, _I64, _P, _P],
    "s3d_pool_sum": [_I32, _I32, _P, _I64, _P, _P, _P, _I64, _I64, _P],
    "s3d_pool_max": [_I32, _I32, _P, _I64, _P, _P, _P, _I64, _I64, _P, _P],
    "s3d_pool_max_grad": [_I32, _I32, _P, _P, _I64, _I64, _I64, _P],
    "s3d_segment_sum": [_I32, _I32, _P, _I64, _P, _I64, _I64, _P],
    "s3d_segment_max": [_I32, _I32, _P, _I64, _P, _I64, _I64, _P, _P],
    "s3d_norm_train": [ctypes.POINTER(NormCall)],
    "s3d_norm_apply": [ctypes.POINTER(NormCall)],
    "s3d_norm_grad": [ctypes.POINTER(NormCall)],
    "s3d_trilinear_map": [_I32, _I32, _P, _I64, _I32, _P, _P, _I64, _P, _P],
    "s3d_interpolate": [_I32, _I32, _I32, _P, _I64, _P, _P, _I64, _I64, _P],
    "s3d_interpolate_grad": [_I32, _I32, _I32, _P, _I64, _P, _P, _I64, _I64, _I64, _P],
    "s3d_dense_scatter": [_I32, _P, _I64, _P, _I64, _I32, _I64, _P, _P],
    "s3d_dense_gather": [_I32, _P, _I64, _P, _I64, _I32, _I64, _P, _P],
    "s3d_conv": [ctypes.POINTER(ConvCall)],
    "s3d_conv_weight_grad": [ctypes.POINTER(WeightGradCall)],
}


def _candidates() -> Iterator[Path]:
    """Beside this file; else where the installed distribution has it (tests run from the source
    tree)."""
    yield Path(__file__).with_name(FILE)
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == FILE:
            yield Path(str(file.locate()))


def _load() -> ctypes.CDLL:
    path = next((path for path in _candidates() if path.is_file()), None)
    if path is None:
        raise BackendUnavailable(
            f"no {FILE} in this installation; reinstall with a C++17 compiler at hand"
        )
    try:
        library = ctypes.CDLL(str(path))
        version = library.s3d_abi_version()
    except (OSError, AttributeError) as error:
        raise BackendUnavailable(f"{path} does not load: {error}") from error
    if version != ABI_VERSION:
        raise BackendUnavailable(
            f"{path} must have ABI version {ABI_VERSION}, got {version}; reinstall {DISTRIBUTION}"
        )
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, _I32
    library.s3d_table_words.argtypes, library.s3d_table_words.restype = [_I64], _I64
    library.s3d_map_sizes.argtypes, library.s3d_map_sizes.restype = [_P, _P, _P], None
    library.s3d_map_free.argtypes, library.s3d_map_free.restype = [_P], None
    return library


library = _load()


class _Path(threading.local):
    number = PATHS["auto"]


_path = _Path()


def paths() -> list[str]:
    """The instruction sets that work on this machine."""
    bits = library.s3d_paths()
    return [name for name, number in PATHS.items() if bits >> number & 1]


def default_path() -> str:
    """What "auto" takes on this machine."""
    number = library.s3d_default_path()
    return next(name for name in PATHS if PATHS[name] == number)


@contextmanager
def use_path(name: str) -> Iterator[None]:
    """Run this thread's calls on one instruction set: for tests and benches."""
    if name not in ("auto", *paths()):
        raise ValueError(f"path must be one of {('auto', *paths())}, got {name!r}")
    before, _path.number = _path.number, PATHS[name]
    try:
        yield
    finally:
        _path.number = before


def path() -> int:
    """The instruction set asked for in this thread."""
    return _path.number


def threads() -> int:
    """Torch's own thread count, read at every call."""
    return torch.get_num_threads()


def call(name: str, *args: Any) -> None:
    """Call a function that returns a status."""
    status = getattr(library, name)(*args)
    if status == _OUT_OF_MEMORY:
        raise MemoryError(f"{name} found no memory")
    if status:
        raise RuntimeError(f"{name} refused its arguments (status {status})")


def address(tensor: torch.Tensor | None) -> int | None:
    """Address of a contiguous tensor's data."""
    return None if tensor is None else tensor.data_ptr()


def longs(values: Sequence[int]) -> Any:
    """A C array of int64."""
    return (_I64 * len(values))(*values)
