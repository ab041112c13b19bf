"""Entry of the `sparse3d` command: it runs, or says in one line what to install."""

import importlib
import io
import logging
import os
import sys
from importlib.util import find_spec

from sparse3d import _interrupt, doctor

EXTRA = ("typer", "rich", "matplotlib", "yaml")
"""What the `cli` extra brings, by import name."""


LEFT_ALONE = 1
"""Exit status after a closed pipe, as typer and rich have it."""


def main() -> int:
    """Run the command line; what the machine refuses ends in one line, nothing half-written.

    Returns:
        The exit status; 2 where the `cli` extra is missing or disk or memory fail, 130 after
        Ctrl-C, 1 in silence where whoever read the output has left.
    """
    try:
        return _guarded()
    finally:
        _interrupt.final()
        _interrupt.ended()


def _guarded() -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be any bytes
    try:
        try:
            return _run()
        finally:
            _interrupt.final()
            _flush()
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as leave:
        # Typer has turned Ctrl-C into its exit already.
        if isinstance(getattr(leave.__context__, "__cause__", None), KeyboardInterrupt):
            return _interrupted()
        raise
    except OSError as error:
        return _refused(error)
    except ImportError as error:
        return _stopped(str(error), 2)
    except (MemoryError, RuntimeError) as error:
        if not _is_memory(error):
            raise
        return _stopped("out of memory; split the scan, or use a machine with more", 2)


def _interrupted() -> int:
    print(_interrupt.LINE, file=sys.stderr)
    return _interrupt.STATUS


def _refused(error: OSError) -> int:
    if isinstance(error, BrokenPipeError):
        return LEFT_ALONE
    named = error.filename is not None
    return _stopped(f"{error.filename}: {error.strerror}" if named else str(error), 2)


def _flush() -> None:
    """Print now what is left, while an error can still be told."""
    try:
        sys.stdout.flush()
    except OSError:
        # The interpreter would try once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _is_memory(error: Exception) -> bool:
    """Torch has no type of its own for a failed allocation on the CPU."""
    return isinstance(error, MemoryError) or any(
        phrase in str(error) for phrase in ("can't allocate memory", "out of memory")
    )


def _stopped(why: str, status: int) -> int:
    print(f"error: {' '.join(why.split())}", file=sys.stderr)
    return status


def _run() -> int:
    if sys.argv[1:2] == ["doctor"]:
        return doctor.main(sys.argv[2:])
    if sys.argv[1:2] == ["selftest"]:
        selftest = importlib.import_module("sparse3d.selftest")
        _interrupt.raised()
        return int(selftest.main(sys.argv[2:]))
    if missing := [name for name in EXTRA if find_spec(name) is None]:
        print(
            f"sparse3d: the command line needs {', '.join(missing)}: {doctor.install_line('cli')}",
            file=sys.stderr,
        )
        return 2
    # Where HOME is read-only it says at length that its cache lies elsewhere.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    importlib.import_module("sparse3d.cli").app(prog_name="sparse3d")
    return 0
