"""Finds and loads the compiled CPU library.

The library lies beside this file in an installed package. When the source tree comes first on the
path (`python -m pytest` from the root, an editable install) it lies in the installed package
instead, whose file list knows where.
"""

import ctypes
import functools
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "sparse3d-torch"
NAME = "libsparse3d_cpu.so"


def candidates() -> list[Path]:
    """Places where the library may lie, best first."""
    places = [Path(__file__).with_name(NAME)]
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        files = []
    places += [Path(str(file.locate())) for file in files if file.name == NAME]
    return places


def find() -> Path | None:
    """The compiled library, or None where it was not built."""
    return next((place for place in candidates() if place.is_file()), None)


@functools.cache
def load() -> ctypes.CDLL:
    """The compiled library, loaded once.

    Raises:
        OSError: it was not built, or this machine cannot load it. The message is one line.
    """
    place = find()
    if place is None:
        raise OSError(
            f"{NAME} is not installed: reinstall {DISTRIBUTION} where a C++17 compiler is at hand"
        )
    return ctypes.CDLL(str(place))
