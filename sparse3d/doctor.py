"""`sparse3d doctor`: what this installation can do, and one line of advice for what it cannot.

Needs torch and the standard library only, so that it runs where the rest does not.
"""

import argparse
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import torch

from sparse3d._version import __version__

DISTRIBUTION = "sparse3d-torch"
FOREIGN = "sparse3d"
"""Another project's name in the index; installed beside ours it overwrites our files."""


OLDEST_TORCH = (2, 7)
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")

STATES = ("kernel", "reference")
"""What `sparse3d.backends()` says where the backend is there; anything else is a reason."""


class Parser(argparse.ArgumentParser):
    """Of commands that need no extra: errors of usage are one line."""

    def error(self, message: str) -> NoReturn:
        """End with 2."""
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def install_line(extra: str) -> str:
    """The command that installs an extra into the running interpreter."""
    return f"{shlex.quote(sys.executable)} -m pip install '{DISTRIBUTION}[{extra}]'"


def main(arguments: Sequence[str] = ()) -> int:
    """Print the report.

    Returns:
        0, or 1 if another project's `sparse3d` is in the way.
    """
    Parser(prog="sparse3d doctor", description=__doc__).parse_args(arguments)
    for line in report():
        print(line)
    return 1 if foreign_version() else 0


def report() -> Iterator[str]:
    """The lines of the report."""
    yield f"sparse3d   {__version__} in {Path(__file__).parent} ({_distribution()})"
    yield f"python     {platform.python_version()}, {platform.platform(terse=True)}"
    yield f"torch      {torch.__version__}, {torch.get_num_threads()} CPU threads"
    yield f"devices    {', '.join(devices())}"
    yield from _library()
    yield from _backends()
    yield from _extras()
    for number, line in enumerate(advice() or ["nothing to mend"]):
        yield f"{'' if number else 'advice':<11}{line}"
    if version := foreign_version():
        yield (
            f"WARNING    the distribution {FOREIGN} {version} is another project and shares our "
            f"import name: {shlex.quote(sys.executable)} -m pip uninstall {FOREIGN}, then install "
            f"{DISTRIBUTION} again"
        )


def devices() -> list[str]:
    """The devices that torch can use here, by name."""
    found = ["cpu"]
    found += [
        f"cuda:{i} ({torch.cuda.get_device_name(i)})"
        for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    ]
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def advice() -> list[str]:
    """One line for each thing that is not as good as it could be, with what to do about it."""
    lines = []
    python, root = shlex.quote(sys.executable), Path(__file__).parent.parent
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        lines.append(
            f"torch {torch.__version__} is too old: {python} -m pip install 'torch>={oldest}'"
        )
    if _version(DISTRIBUTION) is None:
        lines.append(
            f"run from a source tree: {python} -m pip install -e {shlex.quote(f'{root}[cli]')}"
        )
    elif _library_error():
        again = f"{python} -m pip install --force-reinstall --no-deps {DISTRIBUTION}"
        lines.append(f"CPU layers are slow without the library: get a C++17 compiler, then {again}")
    if _version(DISTRIBUTION) is not None and (missing := missing_requirements().get("cli")):
        lines.append(f"the commands need {', '.join(missing)}: {install_line('cli')}")
    if torch.version.cuda is None and NVIDIA_DRIVER.exists():
        lines.append("an NVIDIA driver is here, but torch is a CPU build: install a CUDA build")
    if platform.system() == "Darwin" and not torch.backends.mps.is_available():
        lines.append("no Metal: it needs Apple silicon, macOS 14 and an arm64 Python, not Rosetta")
    cores = os.cpu_count() or 1
    if (threads := torch.get_num_threads()) < cores // 2:
        more = "torch.set_num_threads, or unset OMP_NUM_THREADS"
        lines.append(f"torch uses {threads} of {cores} cores: {more}")
    return lines


def foreign_version() -> str | None:
    """The version of another project's `sparse3d` distribution, if it is installed."""
    return _version(FOREIGN)


def missing_requirements() -> dict[str, list[str]]:
    """For each extra of this distribution, the distributions that are not installed."""
    missing: dict[str, list[str]] = {}
    for line in metadata.requires(DISTRIBUTION) or []:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        name = re.match(r"[\w.-]+", requirement)
        if not extra or not name or not _applies(marker):
            continue
        absent = missing.setdefault(extra[1], [])
        if _version(name[0]) is None:
            absent.append(name[0])
    return missing


def _applies(marker: str) -> bool:
    """Whether the platform and Python bounds of a marker hold here (the forms that we write)."""
    platforms = re.search(r"sys_platform\s*==\s*['\"](\w+)['\"]", marker)
    if platforms and platforms[1] != sys.platform:
        return False
    bound = re.search(r"python_version\s*<\s*['\"]3\.(\d+)['\"]", marker)
    return not bound or sys.version_info < (3, int(bound[1]))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _distribution() -> str:
    version = _version(DISTRIBUTION)
    return f"{DISTRIBUTION} {version}" if version else "source tree, not installed"


def _library() -> Iterator[str]:
    """Whether the compiled CPU library loads, asked of its loader, and its instruction set."""
    if error := _library_error():
        yield f"library    not loaded, the torch reference is used: {error}"
        return
    loader = import_module("sparse3d.cpu._library")
    yield f"library    {loader.library._name} ({loader.default_path()})"


def _library_error() -> str:
    """Why the compiled CPU library does not load, or nothing."""
    try:
        import_module("sparse3d.cpu._library")
    except Exception as error:
        return _one_line(error)
    return ""


def _backends() -> Iterator[str]:
    """The op x backend table: which ops have kernels, and why a backend is not there."""
    try:
        table = _table()
    except (
        Exception
    ) as error:  # a backend that breaks when imported is what a doctor is asked about
        yield f"backends   broken, {type(error).__name__}: {_one_line(error)}"
        return
    columns = list(next(iter(table.values()), {}))
    width = max(map(len, table), default=0)
    yield f"backends   {'op':<{width}}  " + "  ".join(f"{name:<9}" for name in columns).rstrip()
    for op, row in table.items():
        states = [row[name] if row[name] in STATES else "-" for name in columns]
        yield f"{'':11}{op:<{width}}  " + "  ".join(f"{state:<9}" for state in states).rstrip()
    for name in columns:
        reasons = {row[name] for row in table.values()} - set(STATES)
        yield from (f"{'':11}{name} is not there: {' '.join(text.split())}" for text in reasons)


def _table() -> dict[str, dict[str, str]]:
    for optional in ("pointops", "nn"):  # their ops enter the table when they are imported
        if find_spec(f"sparse3d.{optional}"):
            import_module(f"sparse3d.{optional}")
    table: dict[str, dict[str, str]] = import_module("sparse3d").backends()
    return table


def _extras() -> Iterator[str]:
    if _version(DISTRIBUTION) is None:
        yield "extras     unknown: the source tree is not installed"
        return
    yield "extras"
    for extra, missing in missing_requirements().items():
        state = f"missing {', '.join(missing)}: {install_line(extra)}" if missing else "installed"
        yield f"  {extra:<8} {state}"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
