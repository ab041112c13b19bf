"""NVRTC through ctypes: CUDA text to machine code. It needs no GPU, no toolkit and no headers."""

import ctypes
import site
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from .._registry import BackendUnavailable

OPTIONS = ("--std=c++17", "--fmad=false", "--disable-warnings", "--generate-line-info")
"""Every operation is rounded on its own, as the reference and Metal's safe mode do."""


class Compiler:
    """One libnvrtc.

    Args:
        path: the library's file, or a name for the dynamic linker.

    Raises:
        OSError: if it does not load.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"
        count = ctypes.c_int()
        self._call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        listed = (ctypes.c_int * count.value)()
        self._call("nvrtcGetSupportedArchs", listed)
        self.architectures = sorted(listed)

    def target(self, capability: int) -> str:
        """What to compile for a GPU of this capability (90: 9.0).

        Machine code of its own, or of the newest that this NVRTC knows as PTX for the driver to
        compile.
        """
        if capability in self.architectures:
            return f"sm_{capability}"
        older = [known for known in self.architectures if known < capability]
        if not older:
            raise RuntimeError(
                f"the GPU must be of capability {self.architectures[0] / 10} or later for NVRTC "
                f"{self.version}, got {capability / 10}; install a torch for an older CUDA"
            )
        return f"compute_{older[-1]}"

    def compile(self, text: str, target: str) -> bytes:
        """Machine code, or PTX, of CUDA text without includes.

        Raises:
            SyntaxError: with the compiler's words.
        """
        program = ctypes.c_void_p()
        create = (ctypes.byref(program), text.encode(), b"sparse3d.cu", 0, None, None)
        self._call("nvrtcCreateProgram", *create)
        try:
            options = [f"--gpu-architecture={target}", *OPTIONS]
            encoded = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
            code = self._library.nvrtcCompileProgram(program, len(options), encoded)
            if code:
                raise SyntaxError(self._read("ProgramLog", program).decode(errors="replace"))
            return self._read("CUBIN" if target.startswith("sm_") else "PTX", program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _read(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _call(self, name: str, *args: object) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            text = self._library.nvrtcGetErrorString(code).decode()
            raise RuntimeError(f"{name} of {self.path} failed: {text}")


def _files(major: str) -> Iterator[str]:
    """libnvrtc of the packages that torch brings, beside torch, and where the linker looks."""
    wildcard = major or "*"
    roots = [Path(torch.__file__).parents[1], *map(Path, site.getsitepackages())]
    for root in dict.fromkeys(roots):
        for found in sorted(root.glob(f"nvidia/*/lib/libnvrtc.so.{wildcard}")):
            yield str(found)
    for found in sorted((Path(torch.__file__).parent / "lib").glob("libnvrtc[.-]*so*")):
        yield str(found)
    yield f"libnvrtc.so.{major}" if major else "libnvrtc.so"
    yield "/usr/local/cuda/lib64/libnvrtc.so"


@cache
def compiler() -> Compiler:
    """The NVRTC of torch's own CUDA version; on a torch without CUDA, any.

    Raises:
        BackendUnavailable: if there is none.
    """
    major = (torch.version.cuda or "").partition(".")[0]
    for path in _files(major):
        try:
            return Compiler(path)
        except OSError:
            continue
    raise BackendUnavailable(
        f"no libnvrtc.so.{major or '*'}: pip install nvidia-cuda-nvrtc"
        + (f"-cu{major}" if major and int(major) < 13 else "")
    )
