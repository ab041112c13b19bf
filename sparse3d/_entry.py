"""Entry of the `sparse3d` command: it runs, or says in one line what to install."""

import importlib
import sys
from importlib.util import find_spec

from sparse3d import doctor

EXTRA = ("typer", "rich", "matplotlib", "yaml")
"""What the `cli` extra brings, by import name."""


def main() -> int:
    """Run the command line.

    Returns:
        The exit status; 2 where the `cli` extra is missing.
    """
    if sys.argv[1:2] == ["doctor"]:
        return doctor.main(sys.argv[2:])
    if sys.argv[1:2] == ["selftest"]:
        return int(importlib.import_module("sparse3d.selftest").main(sys.argv[2:]))
    if missing := [name for name in EXTRA if find_spec(name) is None]:
        print(
            f"sparse3d: the command line needs {', '.join(missing)}: {doctor.install_line('cli')}",
            file=sys.stderr,
        )
        return 2
    importlib.import_module("sparse3d.cli").app(prog_name="sparse3d")
    return 0
