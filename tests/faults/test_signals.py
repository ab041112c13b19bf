"""Ctrl-C: exit status 130, one line, and every file that is there is whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from faults.commands import COMMAND, ROOT, names, run, start

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from sparse3d.data import Sensor, simulate, write_scan

STREET = simulate(5, Sensor(beams=16, azimuths=200))


def _interrupted(args: list[object], ready: Callable[[], bool]) -> tuple[int, str]:
    """Status and stderr of a command that gets SIGINT once `ready`."""
    # A shell's background jobs, and so what they start, are born deaf to it.
    program = start(COMMAND, *args, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    deadline = time.monotonic() + 60
    while not ready() and program.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=60)
    return program.returncode, err


def test_segment(tmp_path: Path) -> None:
    folder, out = tmp_path / "scans", tmp_path / "out"
    folder.mkdir()
    for index in range(100):
        write_scan(folder / f"{index:03}.bin", STREET.points)
    status, err = _interrupted(
        ["segment", folder, "--out", out, "--device", "cpu"], (out / "001.label").exists
    )
    assert (status, err) == (130, "error: interrupted\n")
    made = names(out)
    assert 4 <= len(made) < 300  # three of the first scan, the label file of the second
    assert not [name for name in made if name.endswith(".part")]
    again = tmp_path / "again"
    stems = [f"{index:03}" for index in range(len(made) // 3)]
    scans = [folder / f"{stem}.bin" for stem in stems[:1]]
    assert run(COMMAND, "segment", *scans, "--out", again, "--device", "cpu")[0] == 0
    for stem in stems:
        for kind in ("label", "ply"):  # the same points: the same bytes
            whole = (again / f"000.{kind}").read_bytes()
            assert (out / f"{stem}.{kind}").read_bytes() == whole


def test_convert(tmp_path: Path) -> None:
    state = {f"{i}.weight": torch.zeros(300, 300) for i in range(2000)}
    torch.save(state, tmp_path / "a.pth")
    target = tmp_path / "b.pth"
    before = set(names(tmp_path))
    status, err = _interrupted(
        ["convert", tmp_path / "a.pth", target, "--layout", "spconv"],
        lambda: set(names(tmp_path)) != before,  # the hidden part has appeared
    )
    assert (status, err) == (130, "error: interrupted\n")
    assert names(tmp_path) == ["a.pth"]


@pytest.mark.parametrize(
    "command",
    [["doctor"], ["segment", "SCAN", "--out", "out"], ["view", "SCAN", "--save", "v.html"]],
    ids=lambda command: command[0],
)
def test_while_it_imports(command: list[str], tmp_path: Path) -> None:
    """At any time from the first import to the interpreter's end: 130 and a line, or all done."""
    write_scan(tmp_path / "SCAN.bin", STREET.points)
    args = [word.replace("SCAN", "SCAN.bin") for word in command]
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", ""], check=True)
    bare = time.monotonic() - begun
    interrupted = 0
    for delay in (0.2, 0.6, 1.0, 1.5, 2.0, 2.5, 3.0):
        program = subprocess.Popen(
            [sys.executable, "-m", "sparse3d", *args],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )  # fmt: skip
        time.sleep(bare + delay)
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=120)
        assert program.returncode in (0, 130), (delay, err)
        assert "Traceback" not in err
        if program.returncode == 130:
            interrupted += 1
            assert err == "error: interrupted\n", delay
    assert interrupted > 1
    assert not [name for name in names(tmp_path) if name.endswith(".part")]


def test_a_library_keeps_its_users_handler() -> None:
    code = """
        import signal
        before = signal.getsignal(signal.SIGINT)
        import sparse3d
        assert signal.getsignal(signal.SIGINT) is before
    """
    assert run(code)[0] == 0


@pytest.mark.parametrize("args", [["doctor"], ["segment", "--help"]])
def test_whoever_reads_the_output_leaves(args: list[str]) -> None:
    """As in `sparse3d doctor | head -1`: silence, not a complaint of the interpreter's."""
    gone, pipe = os.pipe()
    os.close(gone)
    made = subprocess.run(
        [sys.executable, "-m", "sparse3d", *args],
        stdout=pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
    )  # fmt: skip
    os.close(pipe)
    assert (made.returncode, made.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_output_on_a_full_disk() -> None:
    with Path("/dev/full").open("w") as full:
        made = subprocess.run(
            [sys.executable, "-m", "sparse3d", "doctor"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120,
        )  # fmt: skip
    assert made.returncode == 2
    assert made.stderr == "error: [Errno 28] No space left on device\n"
