"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["PathLike", "atomic", "check_file", "said"]

PathLike = str | os.PathLike[str]


@contextmanager
def atomic(path: PathLike) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` that takes its place when the block ends well.

    A reader sees the old file or the whole new one. On an error the temporary file is removed; a
    process that is killed leaves at most the hidden ``.NAME.*.part``.

    Raises:
        OSError: with `filename` the path that was asked for, a full disk included.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        # torch.save closes a half-written archive and reports that, not the disk it met before.
        cause = error.__context__ if isinstance(error, RuntimeError) else error
        if not isinstance(cause, OSError):
            raise
        if cause.errno is not None and cause.filename in (None, str(part)):
            cause = OSError(cause.errno, cause.strerror, str(path))
        raise cause from None
    _sync_folder(path.parent)


def check_file(name: str, path: PathLike) -> None:
    """Refuse a file that cannot be written, before any work is done; no folder is made for one.

    Raises:
        ValueError: It is a folder, or none is there to hold it, or that one is read-only; one line.
    """
    path = Path(path)
    folder = path.parent
    if path.is_dir():
        raise ValueError(f"{name} must be a file, got the folder {path}; name one in it")
    if not folder.is_dir():
        raise ValueError(
            f"{name} must lie in a folder that is there, got {path}; make {folder} first, or name "
            "another place"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{name} must be writable, got {path} in {folder}; name another place")


def said(error: Exception) -> str:
    """An error as one line, which begins with the file where the system names one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last; not every platform can open a folder."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
