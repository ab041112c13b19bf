"""Names of other libraries' compiled halves: imports find them, use says that they are not here.

`refused` makes such a name, `modules_below` a tree of modules that hold little else.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

__all__ = ["modules_below", "refused"]


class _Refusing(type):
    """A class that can be named, imported and inherited from, and nothing else."""

    _words: str

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(cls._words)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(cls._words)


def refused(name: str, way_out: str) -> Any:
    """A class that raises NotImplementedError when it is called or an attribute of it is read."""
    words = f"{name} must be left out with sparse3d, got a use of it; {way_out}"
    return _Refusing(
        name.rpartition(".")[2], (), {"_words": words, "__doc__": f"Not here: {words}."}
    )


def modules_below(home: str, table: dict[str, dict[str, Any]]) -> list[ModuleType]:
    """Modules that lie in no file of their own.

    Args:
        home: dotted name of the module that they lie below, imported already.
        table: dotted name below it -> its names; what a name leads through is there already.

    Returns:
        The modules in the table's order; each is an attribute of the one above it.
    """
    made: list[ModuleType] = []
    for place, names in table.items():
        module = ModuleType(f"{home}.{place}", f"`{place}`: what the peer compiles.")
        module.__spec__ = ModuleSpec(module.__name__, None, is_package=True)
        module.__path__ = []
        module.__dict__.update(names, __all__=sorted(names))
        above, _, leaf = place.rpartition(".")
        setattr(importlib.import_module(f"{home}.{above}".rstrip(".")), leaf, module)
        sys.modules[module.__name__] = module
        made.append(module)
    return made
