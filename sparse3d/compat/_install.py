"""Register stand-ins under the names that third-party code imports."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from email.message import Message
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import _check

__all__ = ["available", "install", "uninstall"]

_STAND_INS = {
    "spconv": ("spconv", "2.3.8"),
    "cumm": ("cumm", "0.8.2"),
    "MinkowskiEngine": ("minkowski", "0.5.4"),
    "torchsparse": ("torchsparse", "2.1.0"),
    "torchsparse==1.4.0": ("torchsparse_1_4", "1.4.0"),
    "torchsparse==1.2.0": ("torchsparse_1_2", "1.2.0"),
    "torchsparse==1.1.0": ("torchsparse_1_2", "1.1.0"),
    "torchsparse==1.0.0": ("torchsparse_1_2", "1.0.0"),
    "flex_gemm": ("flex_gemm", "1.1.0"),
    "mps_pointops": ("mps_pointops", "1.0.0"),
    "pointnet2_ops": ("pointnet2_ops", "3.0.0"),
    "knn_cuda": ("knn_cuda", "0.2"),
    "torch_cluster": ("torch_cluster", "1.6.3"),
    "torch_scatter": ("torch_scatter", "2.1.2"),
    "pytorch3d": ("pytorch3d", "0.7.9"),
    "pointops": ("pointops", "1.0"),
    "pointops2": ("pointops2", "1.0"),
}
"""Name asked for -> our module below `sparse3d.compat`, and the version it stands in for."""

_COMPANIONS = {"spconv": ("cumm",)}
"""What the peer brings along: registered with it where nothing of that name is there."""

_DEFAULTS = ("spconv", "MinkowskiEngine", "torchsparse", "flex_gemm")


def available() -> list[str]:
    """Names that `install` takes."""
    return [name for name, (place, _) in _STAND_INS.items() if _exists(place)]


def install(*names: str, force: bool = False) -> list[str]:
    """Let imports of other libraries find sparse3d's stand-ins.

    Args:
        *names: packages, as third-party code imports them; `torchsparse==1.4.0` asks for that
            version's coordinate convention, `torchsparse==1.2.0` for what was before it. None
            means the sparse-convolution libraries.
        force: stand in for a package even if a real one can be imported.

    Returns:
        The top-level names that now lead to a stand-in; a real package is left alone and not
        listed.

    Raises:
        ValueError: if there is no stand-in of a name.

    Example:
        >>> import sparse3d.compat
        >>> sparse3d.compat.install("spconv")[0]
        'spconv'
        >>> import spconv.pytorch
        >>> spconv.__version__
        '2.3.8'
    """
    known = available()
    made: list[str] = []
    for name in names or _DEFAULTS:
        if name not in known:
            _check.fail("name", f"one of {known}", repr(name))
        for part in (name, *_COMPANIONS.get(name, ())):
            target = part.split("==", maxsplit=1)[0]
            if not force and _is_real(target):
                if part == name:
                    break  # what a real package brings along is its own
                continue
            if target not in made:
                _register(target, part, force)
                made.append(target)
    return made


def uninstall(*names: str) -> None:
    """Take stand-ins away again; what was imported from them keeps working.

    Args:
        *names: as given to `install`, with what it registered along with them; none means all.
    """
    for name in names or tuple(_STAND_INS):
        for part in (name, *_COMPANIONS.get(name, ())):
            target = part.split("==", maxsplit=1)[0]
            if _stands_in(sys.modules.get(target)):
                _forget(target)
                _Finder.versions.pop(target, None)


def _register(target: str, name: str, force: bool) -> None:
    place, version = _STAND_INS[name]
    root = importlib.import_module(f"sparse3d.compat.{place}")
    _forget(target)
    for module in _tree(root):
        sys.modules[target + module.__name__.removeprefix(root.__name__)] = module
    for alias, home in getattr(root, "_ALIASES", {}).items():
        if force or not _is_real(alias.partition(".")[0]):
            sys.modules[alias] = importlib.import_module(f"{root.__name__}.{home}")
    for spare in getattr(root, "_LAST_RESORTS", ()):
        _Finder.spares[spare] = importlib.import_module(f"{root.__name__}.{spare}")
    _Finder.versions[target] = version
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def _tree(root: ModuleType) -> Iterator[ModuleType]:
    """A stand-in and everything below it, imported."""
    yield root
    yield from getattr(root, "_BELOW", ())
    for found in pkgutil.walk_packages(getattr(root, "__path__", []), f"{root.__name__}."):
        if not found.name.rsplit(".", maxsplit=1)[-1].startswith("_"):
            module = importlib.import_module(found.name)
            yield module
            yield from getattr(module, "_BELOW", ())


def _forget(target: str) -> None:
    root = sys.modules.get(target)
    spares = [n for n in getattr(root, "_LAST_RESORTS", ()) if _stands_in(sys.modules.get(n))]
    aliases = [n for n in getattr(root, "_ALIASES", {}) if _stands_in(sys.modules.get(n))]
    for alias in [target, *aliases, *spares]:
        for name in [n for n in sys.modules if n == alias or n.startswith(f"{alias}.")]:
            del sys.modules[name]
    for name in getattr(root, "_LAST_RESORTS", ()):
        _Finder.spares.pop(name, None)


def _exists(place: str) -> bool:
    return importlib.util.find_spec(f"sparse3d.compat.{place}") is not None


def _stands_in(module: ModuleType | None) -> bool:
    return module is not None and module.__name__.startswith("sparse3d.compat.")


def _is_real(target: str) -> bool:
    """Whether a package of that name, not ours, is imported or can be."""
    module = sys.modules.get(target)
    if module is not None:
        return not _stands_in(module)
    spec = importlib.util.find_spec(target)
    # A bare folder of that name somewhere on the path is no package.
    return spec is not None and spec.origin is not None


class _Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata` says of a stand-in: name and version."""

    def __init__(self, name: str, version: str) -> None:
        self._name, self._version = name, version

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        message = Message()
        message["Metadata-Version"] = "2.1"
        message["Name"] = self._name
        message["Version"] = self._version
        return message.as_string()

    def locate_file(self, path: Any) -> Path:
        return Path(__file__).parent / str(path)


class _Spare(importlib.abc.Loader):
    """Gives a module of ours under a second name."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        for module in _tree(self._module):
            tail = module.__name__.removeprefix(self._module.__name__)
            sys.modules[spec.name + tail] = module
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class _Finder(importlib.metadata.DistributionFinder):
    """Answers `importlib.metadata.version("spconv")`, and imports of names that a peer puts at the
    end of the path (MinkowskiEngine's `utils`); others go through `sys.modules`."""

    versions: dict[str, str] = {}  # noqa: RUF012
    spares: dict[str, ModuleType] = {}  # noqa: RUF012

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname not in self.spares:
            return None
        module = self.spares[fullname]
        return ModuleSpec(fullname, _Spare(module), is_package=hasattr(module, "__path__"))

    def find_distributions(
        self,
        context: importlib.metadata.DistributionFinder.Context | None = None,
    ) -> Iterable[importlib.metadata.Distribution]:
        wanted = None if context is None else context.name
        for name, version in self.versions.items():
            if wanted is None or _same(wanted, name):
                yield _Distribution(name, version)


def _same(left: str, right: str) -> bool:
    return left.lower().replace("-", "_") == right.lower().replace("-", "_")
