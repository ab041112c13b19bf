"""Runs the library's own Metal backend on CPU tensors: installs the emulator under its launch
code."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from sparse3d import _registry

from .build import fronts
from .device import Library, Options
from .traffic import Traffic

Compiler = Callable[[str], Library]


@dataclass
class Session:
    """What an installed emulator has compiled and launched so far."""

    front: str
    check: bool
    options: Options
    libraries: list[Library] = field(default_factory=list)
    log: list[Traffic] = field(default_factory=list)

    def compile(self, text: str) -> Library:
        """What the launch code calls instead of `torch.mps.compile_shader`."""
        library = Library(text, self.front, self.check, self.options, self.log)
        self.libraries.append(library)
        return library

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
    return importlib.import_module("sparse3d.metal._shader")


def _forget() -> None:
    """Makes the registry ask the package again whether it can work."""
    _registry._load_errors.pop("metal", None)


@contextmanager
def replaced(device_type: str, compiler: Compiler | None) -> Iterator[None]:
    """Within it kernels for tensors of a device type are compiled by another."""
    shader = _seam()
    launcher = compiler and shader.MetalLauncher(compiler, device_type)
    before = shader.install(device_type, launcher)
    _forget()
    try:
        yield
    finally:
        shader.install(device_type, before)
        _forget()


@contextmanager
def installed(front: str = "gcc", check: bool = True, **options: Any) -> Iterator[Session]:
    """Within it `_registry.force("metal")` runs Metal kernels for CPU tensors; faults raise
    MetalError."""
    session = Session(front, check, Options(**options))
    with replaced("cpu", session.compile):
        yield session


@contextmanager
def uninstalled() -> Iterator[None]:
    """Within it the backend is what it is without the emulator."""
    with replaced("cpu", None):
        yield


_process: list[Session] = []


def enable(front: str | None = None, seed: int = 0, schedules: int = 1) -> Session:
    """Installs the emulator for the rest of the process, once, without the meter; the strict front
    end if it is here."""
    if not _process:
        options = Options(seed=seed, schedules=schedules, meter=False)
        session = Session(front or fronts()[0], True, options)
        shader = _seam()
        shader.install("cpu", shader.MetalLauncher(session.compile, "cpu"))
        _forget()
        _process.append(session)
    return _process[0]
