"""Submodules that a package imports when they are first asked for (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

__all__ = ["submodules"]


def submodules(
    package: str, names: Iterable[str]
) -> tuple[Callable[[str], ModuleType], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, under which its submodules are attributes.

    Args:
        package: Its `__name__`.
        names: The submodules; what importing one raises passes through.
    """
    known = frozenset(names)

    def get(name: str) -> ModuleType:
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return importlib.import_module(f"{package}.{name}")

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *known})

    return get, listed
