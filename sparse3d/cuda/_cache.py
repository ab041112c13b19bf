"""Compiled kernels on disk, so that a process after the first compiles nothing.

They lie in `$XDG_CACHE_HOME/sparse3d/cubin` (`~/.cache` where the variable is not set). Whatever
goes wrong with the folder, a kernel is compiled again and nothing fails.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_DIGEST = hashlib.sha256().digest_size


def user_folder() -> Path | None:
    """The folder of this user; None for a user without a home."""
    named = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(named) if named else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "sparse3d" / "cubin"


def key(*parts: str) -> str:
    """A file name for all that decides what a compiler makes."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Cache:
    """Files of bytes by key; each begins with the digest of the rest.

    Args:
        folder: made when something is first kept; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def get(self, name: str) -> bytes | None:
        """What was kept under this key; None if nothing, or if the file is damaged."""
        if self.folder is None:
            return None
        try:
            whole = (self.folder / name).read_bytes()
        except OSError:
            return None
        payload = whole[_DIGEST:]
        intact = hashlib.sha256(payload).digest() == whole[:_DIGEST]
        return payload if intact else None

    def put(self, name: str, payload: bytes) -> None:
        """Keep it: written beside and moved into place, so that readers see all or nothing."""
        if self.folder is None:
            return
        with suppress(OSError):  # read-only or full: the next process compiles again
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(dir=self.folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(payload).digest() + payload)
                Path(scratch).replace(self.folder / name)
            finally:
                Path(scratch).unlink(missing_ok=True)
