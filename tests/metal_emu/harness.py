"""Runs the library's own Metal backend on CPU tensors: installs the emulator under its launch
code."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType

from sparse3d import _registry

from .device import Library, Options
from .traffic import Traffic

_PACKAGE = "sparse3d.metal"


@dataclass
class Session:
    """What an installed emulator has compiled and launched so far."""

    options: Options
    libraries: list[Library] = field(default_factory=list)
    log: list[Traffic] = field(default_factory=list)

    def launches(self, kernel: str) -> list[Traffic]:
        """Traffic of every launch of one kernel, in order; needs `check`."""
        return [t for t in self.log if t.kernel == kernel]

    def threadgroup_bytes(self) -> dict[str, int]:
        """Threadgroup memory of every compiled kernel, its largest specialisation."""
        sizes: dict[str, int] = {}
        for library in self.libraries:
            for name, kernel in library.kernels.items():
                sizes[name] = max(sizes.get(name, 0), kernel.static_thread_group_memory_length)
        return sizes


def _seam() -> ModuleType:
    """The backend's `_shader` module, which stays loaded when the package refuses to load."""
    with suppress(_registry.BackendUnavailable):
        importlib.import_module(_PACKAGE)
    return sys.modules[f"{_PACKAGE}._shader"]


def _forget() -> None:
    """Makes the registry ask the package again whether it can work."""
    _registry._load_errors.pop("metal", None)
    sys.modules.pop(_PACKAGE, None)


@contextmanager
def installed(
    front: str = "gcc", check: bool = True, seed: int = 0, spurious: bool = True
) -> Iterator[Session]:
    """Within it `_registry.force("metal")` runs Metal kernels for CPU tensors; faults raise
    MetalError."""
    session = Session(Options(seed=seed, spurious=spurious))

    def compiler(text: str) -> Library:
        library = Library(text, front, check, session.options, session.log)
        session.libraries.append(library)
        return library

    shader = _seam()
    before = (shader.compile_shader, shader.device_type)
    shader.install(compiler, "cpu")
    _forget()
    try:
        yield session
    finally:
        shader.install(*before)
        _forget()
