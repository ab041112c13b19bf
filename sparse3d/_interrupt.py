"""Ctrl-C while the `sparse3d` command is still importing: one line and status 130, at once.

Torch takes seconds to import, and an exception in the middle of that ends in a traceback, or in an
abort of its C++ side. The package imports this module before anything else. Where the package is a
library, nothing is changed.
"""

import os
import signal
import sys
from types import FrameType

STATUS = 130
"""Exit status after Ctrl-C, as shells have it."""


LINE = "error: interrupted"


def raised() -> None:
    """From here on Ctrl-C raises `KeyboardInterrupt`: there may be files to clear away."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def final() -> None:
    """From here on Ctrl-C ends the process at once: no file is open, or none is made yet."""
    # Whoever started us deaf to it wants that; a library's user has it as he likes.
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def ended() -> None:
    """The status is known: a Ctrl-C while the interpreter clears up changes nothing any more."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, f"{LINE}\n".encode())
    os._exit(STATUS)


def _is_command() -> bool:
    """Whether this process was started as `sparse3d` or `python -m sparse3d`, and by no pool."""
    pool = sys.modules.get("multiprocessing.process")
    if pool is not None and pool.parent_process() is not None:
        return False
    name = os.path.basename(sys.argv[0]) if sys.argv else ""  # noqa: PTH119, pathlib takes longer
    asked = ("-m", "sparse3d") in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    return asked or name.removesuffix(".exe").removesuffix("-script.py") == "sparse3d"


final()
