"""Commands as programs of their own: run, limited, killed, interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def start(code: str, *args: object, **kwargs: object) -> subprocess.Popen[str]:
    """A Python program with the source tree first; `args` are its `sys.argv[1:]`.

    `make coverage` does not follow it: what measures would write files of its own on a full disk.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    paths = f"{ROOT}{os.pathsep}{ROOT}/tests"
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        cwd=ROOT,
        env={**inherited, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,  # type: ignore[call-overload]
    )


def run(code: str, *args: object, timeout: float = 120) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a program; killed, and a failure, after `timeout`."""
    program = start(code, *args)
    try:
        out, err = program.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        program.kill()
        program.communicate()
        raise
    return program.returncode, out, err


COMMAND = """
    import sys
    from sparse3d._entry import main
    sys.exit(main())
"""
"""`sparse3d` with `args`."""


def killed(status: int) -> bool:
    """Whether a program ended by SIGKILL."""
    return status == -signal.SIGKILL


def names(folder: Path) -> list[str]:
    """Files below a folder, hidden parts too."""
    if not folder.exists():
        return []
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
