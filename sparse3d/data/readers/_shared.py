"""What several readers need: an optional library, and the limit on what a file may unpack to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from sparse3d.data.kitti import ScanError
from sparse3d.doctor import install_line

__all__ = ["check_expansion", "library", "refusing"]

_EXPANSION = 64  # real clouds unpack to less than 20 times their size
_SMALL = 2**24


def library(path: Path, name: str) -> Any:
    """The library that reads this format.

    Raises:
        ScanError: It is not installed; says how to install it.
    """
    try:
        return import_module(name)
    except ImportError:
        raise ScanError(f"{path}: needs {name} to be read: {install_line('io')}") from None


def check_expansion(path: Path, unpacked: int, size: int) -> None:
    """Refuse compressed files that claim to unpack to what no real cloud does."""
    limit = _SMALL + _EXPANSION * size
    if unpacked > limit:
        raise ScanError(
            f"{path}: must unpack to at most {limit} bytes (16 MiB + {_EXPANSION} times its size "
            f"of {size}), got {unpacked} by its header; the header is damaged"
        )


@contextmanager
def refusing(path: Path, what: str) -> Iterator[None]:
    """Turn whatever a library says of a damaged file into one line."""
    try:
        yield
    except (ScanError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # the LAZ decoder panics past Exception
        said = " ".join(str(error).split()) or type(error).__name__
        raise ScanError(f"{path}: {what} cannot be read: {said}; the file is damaged") from None
