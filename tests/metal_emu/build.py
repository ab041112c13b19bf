"""Compiles a .metal source, through one of two front ends, to a shared library that the emulator
runs.

`clang`: clang's C++ for OpenCL. It has real address spaces and refuses most of what Apple's
compiler refuses.
`gcc`: the source rewritten as plain C++. Needs no clang; a second opinion on the same code.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from sparse3d.cuda._source import KernelSource, MetalError
from sparse3d.cuda._translate import DIALECT, without_address_spaces

from .ast_rules import ast_complaints
from .translate import trampolines

HERE = Path(__file__).parent
CACHE = Path(tempfile.gettempdir()) / "sparse3d-metal-emu"
INCLUDE = ["-I", str(HERE / "include"), "-I", str(DIALECT)]
CODE = ["-O1", "-g", "-fPIC", "-mf16c", "-mfma", "-ffp-contract=off"]
CLANG_FLAGS = [
    *("-x", "clcpp", "-cl-std=clc++", "-cl-no-stdinc"),
    *("-Xclang", "-cl-ext=+cl_khr_fp16,+cl_khr_fp64,-__opencl_c_fp64"),
    *("-Wno-unknown-attributes", "-Wno-unknown-pragmas", "-Wall", "-Wno-unused-function"),
]
GCC_FLAGS = [
    *("-std=c++17", "-fno-strict-aliasing", "-fno-threadsafe-statics", "-fno-gnu-unique"),
    *("-fsingle-precision-constant", "-w"),
]
# Without the second flag clang drops the check of a read that a write follows.
CLANG_HOOKS = ["-fsanitize=thread", "-mllvm", "-tsan-instrument-read-before-write"]


@cache
def clang() -> str | None:
    """The newest usable clang++: bfloat needs 17, so Debian's plain `clang` (14) is second
    choice."""
    return next(
        filter(None, (shutil.which(f"clang++{v}") for v in ("-19", "-18", "-17", ""))), None
    )


def fronts() -> tuple[str, ...]:
    """Front ends this machine has; gcc is required."""
    return ("clang", "gcc") if clang() else ("gcc",)


def _run(command: list[str], error: type[Exception]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise error(done.stderr)
    return done.stdout


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


@cache
def _own_code() -> str:
    """Of everything that a compiled library depends on beside its source."""
    own = ("build.py", "translate.py", "ast_rules.py")
    files = [*(HERE / name for name in own), *HERE.glob("runtime/*"), *HERE.glob("include/*")]
    files += [*DIALECT.glob("*"), *DIALECT.parent.glob("_[st]*.py")]
    return _digest(*(f.read_text() for f in sorted(files) if f.is_file()))


@cache
def _runtime_object() -> Path:
    target = CACHE / f"runtime-{_own_code()}.o"
    if not target.exists():
        flags = ["-std=c++17", "-O2", "-g", "-fPIC", "-fno-gnu-unique", "-c"]
        scratch = target.with_suffix(f".{_unique()}")
        _run(["g++", *flags, str(HERE / "runtime/runtime.cpp"), "-o", str(scratch)], MetalError)
        scratch.rename(target)
    return target


def _unique() -> str:
    return Path(tempfile.mkstemp(dir=CACHE)[1]).name


def _check_tree(text: str, file: Path) -> None:
    """The syntax-tree rules, once for a source whatever the macros put before it."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#define"))
    passed = CACHE / f"tree-{_digest(body, _own_code())}"
    if passed.exists():
        return
    dump = ["-fsyntax-only", "-Xclang", "-ast-dump=json", str(file)]
    found = ast_complaints(json.loads(_run([clang(), *CLANG_FLAGS, *INCLUDE, *dump], SyntaxError)))
    if found:
        raise SyntaxError("\n".join(found))
    passed.touch()


def _marked(text: str, suffix: str) -> str:
    """The source with line numbers of its own, so that messages name lines of the .metal file."""
    defines = 0
    for line in text.splitlines():
        if not line.startswith("#define"):
            break
        defines += 1
    head, body = text.splitlines()[:defines], text.splitlines()[defines:]
    return "\n".join([*head, '#line 1 "kernel.metal"', *body, '#line 1 "trampolines"', suffix])


def build(text: str, kernels: list[KernelSource], front: str, check: bool) -> Path:
    """Path of the shared library; SyntaxError with the compiler's text as `compile_shader`
    raises."""
    CACHE.mkdir(exist_ok=True)
    library = CACHE / f"{_digest(text, front, str(check), _own_code())}.so"
    if library.exists():
        return library
    scratch = CACHE / _unique()
    if front == "clang":
        file = scratch.with_suffix(".cl")
        file.write_text(_marked(text, trampolines(kernels, address_spaces=True)))
        _check_tree(text, file)
        compiler = [clang(), *CLANG_FLAGS, *(CLANG_HOOKS if check else [])]
    else:
        file = scratch.with_suffix(".cpp")
        body = without_address_spaces(text)
        file.write_text(_marked(body, trampolines(kernels, address_spaces=False) + "}\n"))
        compiler = ["g++", *GCC_FLAGS, *(["-fsanitize=thread"] if check else [])]
    made = scratch.with_suffix(".o")
    _run([*compiler, *CODE, *INCLUDE, "-c", str(file), "-o", str(made)], SyntaxError)
    shared = scratch.with_suffix(".so")
    link = ["g++", "-shared", "-Wl,-Bsymbolic", "-o", str(shared), str(made)]
    _run([*link, str(_runtime_object()), "-lm"], MetalError)
    shared.rename(library)
    for left in (scratch, file, made):
        left.unlink(missing_ok=True)
    return library
