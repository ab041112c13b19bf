"""Mutation testing: change the contracts one operator at a time; do the tests notice?

    python -m pip install cosmic-ray
    python tools/mutation.py geometry              # minutes; kernel_map and conv take hours
    python tools/mutation.py conv --seconds 600    # a part; the next call goes on
    python tools/mutation.py conv --sample 100     # so many, drawn at random once and for all
    python tools/mutation.py conv --workers 8      # in eight copies side by side

Works on a copy under `build/mutation/`, never on the tree itself. `--report` only prints. The exit
status is 1 where fewer than 90 % of the mutants that were tried were noticed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import math
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
ENOUGH = 0.9
SLOWER = 6
"""A mutant's tests may take so many times what the unchanged ones take of the processor."""
PATIENCE = 8
"""Times as much may pass by the clock: the machine may have other work."""
LONGEST = 1200
"""Seconds of processor time for the unchanged tests themselves."""


@dataclass(frozen=True)
class Target:
    """A module and the tests that are to notice a change of it, those that notice most first."""

    module: str
    tests: tuple[str, ...]


TARGETS = {
    "geometry": Target("sparse3d/geometry.py", ("tests/test_geometry.py",)),
    "kernel_map": Target(
        "sparse3d/ops/kernel_map.py",
        ("tests/ops/test_kernel_map.py", "tests/contract", "tests/nn/test_random_networks.py"),
    ),
    "maps": Target(
        "sparse3d/kernel_map.py",
        ("tests/test_kernel_map.py", "tests/nn/test_tensor.py", "tests/nn/test_conv.py"),
    ),
    "conv": Target(
        "sparse3d/ops/conv.py",
        ("tests/ops/test_conv.py", "tests/nn/test_conv.py", "tests/contract/test_calls.py"),
    ),
}

CONFIG = """[cosmic-ray]
module-path = "{module}"
timeout = {seconds}.0
excluded-modules = []
test-command = "{python} -S ../client.py"

[cosmic-ray.distributor]
name = "local"
"""


CLIENT = """import socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect("../server")
sys.exit(server.recv(1)[0])
"""


def import_from(tree: Path) -> None:
    """Take the package from here, also where an editable installation has a finder of its own."""
    sys.path.insert(0, str(tree))
    sys.meta_path[:] = [f for f in sys.meta_path if "_editable_" not in type(f).__module__]
    found = importlib.util.find_spec("sparse3d")
    if found is None or tree not in Path(str(found.origin)).parents:
        sys.exit(f"sparse3d must come from {tree}, got {found}")


def serve(tree: Path, tests: Sequence[str]) -> NoReturn:
    """Answer each connection with the exit status of the tests, run in a fork.

    Torch takes seconds to import and the tests tenths of one: the fork has it already, but not the
    package under test.
    """
    sys.dont_write_bytecode = True  # files change faster than their times tell
    os.chdir(tree)
    import_from(tree)
    pytest = importlib.import_module("pytest")
    for name in ("torch", "hypothesis.stateful", "numpy.testing"):
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("../server")
    listener.listen()
    measured = Path("../seconds")
    while True:
        client, _ = listener.accept()
        known = measured.exists()
        seconds = SLOWER * math.ceil(float(measured.read_text())) if known else LONGEST
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            signal.alarm(PATIENCE * seconds)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            options = ["-x", "-q", "-p", "no:cacheprovider", "--backend", "reference"]
            os._exit(int(pytest.main([*options, *tests])))
        _, status, usage = os.wait4(child, 0)
        if not known:
            measured.write_text(str(usage.ru_utime + usage.ru_stime))
        client.sendall(bytes([os.waitstatus_to_exitcode(status) & 0xFF]))
        client.close()


@contextmanager
def serving(name: str, folder: Path) -> Iterator[None]:
    """A server of the target's tests in a process of its own."""
    place = folder / "server"
    place.unlink(missing_ok=True)
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(folder / "tree", TARGETS[name].tests)
    )  # no daemon: tests start workers of their own
    process.start()
    while not place.exists() and process.is_alive():
        time.sleep(0.05)
    try:
        yield
    finally:
        process.kill()
        process.join()


def prepare(name: str, folder: Path) -> Path:
    """A copy of the tree, a configuration and a session; kept if they are there already."""
    target, tree = TARGETS[name], folder / "tree"
    config, session = folder / "config.toml", folder / "session.sqlite"
    if session.exists():
        return session
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "sparse3d", "models", "configs", "tests", "pyproject.toml"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    for file in filter(None, listed.split("\0")):
        place = tree / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, place, follow_symlinks=False)
    config.write_text(
        CONFIG.format(module=target.module, python=sys.executable, seconds=PATIENCE * LONGEST)
    )
    (folder / "client.py").write_text(CLIENT)
    shutil.copy2(tree / target.module, folder / "pristine.py")
    with serving(name, folder):
        call(["baseline", "../config.toml"], tree)
    call(["init", "../config.toml", "../session.sqlite"], tree)
    drop_annotations(tree / target.module, session)
    return session


def draw(session: Path, part: slice) -> None:
    """Leave a part of a session's mutants, shuffled the same way every time."""
    base = sqlite3.connect(session)
    with base:
        jobs = [row[0] for row in base.execute(
            "SELECT job_id FROM mutation_specs ORDER BY start_pos_row, start_pos_col, "
            "operator_name, occurrence"
        )]  # fmt: skip
        random.Random(0).shuffle(jobs)
        others = [(job,) for job in set(jobs) - set(jobs[part])]
        for table in ("mutation_specs", "work_items", "work_results"):
            base.executemany(f"DELETE FROM {table} WHERE job_id = ?", others)
    base.close()


def share(folder: Path, workers: int) -> list[Path]:
    """The folder itself for one worker, else a copy for each, with every n-th mutant."""
    if workers == 1:
        return [folder]
    copies = []
    for worker in range(workers):
        copy = folder.parent / f"{folder.name}.{worker}of{workers}"
        if not copy.exists():
            shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns("server"))
            draw(copy / "session.sqlite", slice(worker, None, workers))
        copies.append(copy)
    return copies


def drop_annotations(module: Path, session: Path) -> None:
    """Take the changes of type hints out of a session: nothing evaluates them."""
    hints = []
    for node in ast.walk(ast.parse(module.read_text())):
        for field in ("annotation", "returns"):
            hint = getattr(node, field, None)
            if hint is not None:
                start = (hint.lineno, hint.col_offset)
                hints.append((start, (hint.end_lineno, hint.end_col_offset)))
    base = sqlite3.connect(session)
    with base:
        rows = base.execute("SELECT job_id, start_pos_row, start_pos_col FROM mutation_specs")
        for job, row, column in rows.fetchall():
            if any(start <= (row, column) < end for start, end in hints):
                base.execute("DELETE FROM mutation_specs WHERE job_id = ?", (job,))
                base.execute("DELETE FROM work_items WHERE job_id = ?", (job,))
    base.close()


def program(name: str) -> str:
    """A program of cosmic-ray's, beside this interpreter."""
    return str(Path(sys.executable).with_name(name))


def call(arguments: list[str], tree: Path, seconds: float | None = None) -> None:
    """Run cosmic-ray in the copy; a run that is cut short goes on with the next call."""
    command = [program("cosmic-ray"), *arguments]
    try:
        subprocess.run(command, cwd=tree, check=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"stopped after {seconds:g} s; call again to go on")


def work(name: str, folder: Path, seconds: float | None) -> None:
    """Try the mutants of one folder that have not been tried."""
    # A run that was cut short leaves its last mutant in place.
    shutil.copy2(folder / "pristine.py", folder / "tree" / TARGETS[name].module)
    with serving(name, folder):
        call(["exec", "../config.toml", "../session.sqlite"], folder / "tree", seconds)


def report(folders: Sequence[Path]) -> float:
    """Print the survivors with their change, and the share of mutants that were noticed."""
    tried = alive = 0
    for folder in folders:
        dump = subprocess.run(
            [program("cr-report"), "--show-diff", "--surviving-only", folder / "session.sqlite"],
            capture_output=True, check=True, text=True,
        ).stdout  # fmt: skip
        print(dump)
        counts = re.findall(r"^(complete|surviving mutants): (\d+)", dump, re.M)
        tried += sum(int(n) for what, n in counts if what == "complete")
        alive += sum(int(n) for what, n in counts if what != "complete")
    share = 1 - alive / tried if tried else 0.0
    print(f"{tried} mutants tried, {alive} alive, {share:.1%} noticed")
    return share


def main() -> int:
    """Run or report one target."""
    plain = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--report", action="store_true", help="print what is known, run nothing")
    parser.add_argument("--fresh", action="store_true", help="begin anew, from the tree of now")
    parser.add_argument("--sample", type=int, help="with a fresh session: so many, at random")
    parser.add_argument("--workers", type=int, default=1, help="copies tried side by side")
    options = parser.parse_args()
    if options.workers < 1:
        parser.error(f"--workers must be at least 1, got {options.workers}")
    folder = ROOT / "build" / "mutation" / options.target
    if options.fresh:
        for old in (folder, *folder.parent.glob(f"{options.target}.*of*")):
            shutil.rmtree(old, ignore_errors=True)
    begun = folder.exists()
    session = prepare(options.target, folder)
    if options.sample and not begun:
        draw(session, slice(options.sample))
    folders = share(folder, options.workers)
    if not options.report:
        with ThreadPoolExecutor(len(folders)) as pool:
            jobs = [pool.submit(work, options.target, f, options.seconds) for f in folders]
        for job in jobs:
            job.result()
    return int(report(folders) < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
