"""The public surface as text: `python tests/api/record.py` writes it to tests/api/surface.json.

A name is public if a package's `__all__` lists it. Recorded are parameters with their kinds,
annotations and defaults; of classes, those of the constructor and of public methods and properties
that are ours, not torch's.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = Path(__file__).with_name("surface.json")
PACKAGES = (
    "sparse3d", "sparse3d.nn", "sparse3d.pointops", "sparse3d.pointops.flat", "sparse3d.data",
    "sparse3d.checkpoint", "sparse3d.export",
)  # fmt: skip


def surface() -> dict[str, dict[str, str]]:
    """Module -> public name -> signature."""
    modules = [*PACKAGES, *model_modules()]
    return {name: dict(sorted(entries(importlib.import_module(name)))) for name in sorted(modules)}


def model_modules() -> Iterator[str]:
    package = importlib.import_module("sparse3d.models")
    for found in pkgutil.iter_modules(package.__path__):
        if not found.name.startswith("_"):
            yield f"sparse3d.models.{found.name}"


def entries(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Names with dots for what belongs to a class."""
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isclass(value):
            yield name, described(value)
            continue
        yield name, f"class{constructor(value)}"
        for part, member in members(value):
            yield f"{name}.{part}", described(member)


def constructor(kind: type) -> str:
    """Parameters, or whose they are: torch's and Python's own differ between their versions."""
    owners = (base for base in kind.__mro__ if {"__init__", "__new__"} & vars(base).keys())
    owner = next(owners)
    ours = owner.__module__.partition(".")[0] == "sparse3d" and not issubclass(kind, Enum)
    return signature(kind) if ours else f" as {owner.__module__.partition('.')[0]}'s"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public members that a class of ours defines."""
    for name in dir(kind):
        if name.startswith("_"):
            continue
        owner = next(base for base in kind.__mro__ if name in vars(base))
        if owner.__module__.partition(".")[0] == "sparse3d":
            yield name, vars(owner)[name]


def described(value: Any) -> str:
    if isinstance(value, property):
        return "property" + ("" if value.fset is None else ", assignable")
    if isinstance(value, (classmethod, staticmethod)):
        return f"{type(value).__name__}{signature(value.__func__)}"
    if inspect.ismodule(value):
        return "module"
    if callable(value):
        return f"function{signature(value)}"
    return type(value).__name__


def signature(value: Any) -> str:
    """Without quotes around annotations that are text: modules differ in that, not in sense."""
    try:
        found = inspect.signature(value)
    except ValueError:  # enums and the like, before Python 3.13
        return "(...)"
    parameters = [
        p.replace(annotation=_bare(p.annotation), default=_plain(p.default))
        for p in found.parameters.values()
    ]
    returns = _bare(found.return_annotation)
    return str(found.replace(parameters=parameters, return_annotation=returns))


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _bare(annotation: Any) -> Any:
    return _Text(annotation) if isinstance(annotation, str) else annotation


def _plain(default: Any) -> Any:
    """Values as they print everywhere; others by the name of their class."""
    if default is inspect.Parameter.empty or isinstance(
        default, (str, int, float, tuple, type(None))
    ):
        return default
    return _Text(f"<{type(default).__name__}>")


if __name__ == "__main__":
    FILE.write_text(json.dumps(surface(), indent=1) + "\n", "utf-8")
