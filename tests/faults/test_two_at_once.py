"""Two commands that add to one folder at once: the second is refused in one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from faults.commands import names, start
from kitti_folder import make_kitti
from typer.testing import CliRunner

from sparse3d.cli import app
from sparse3d.data.files import alone_in

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs locks of files")

HOLD = """
    import sys
    from sparse3d.data.files import alone_in
    with alone_in(sys.argv[1]):
        print("held", flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def hold() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts a program that holds a folder."""
    programs = []

    def begin(folder: Path) -> subprocess.Popen[str]:
        program = start(HOLD, folder, stdin=subprocess.PIPE)
        programs.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "held\n"
        return program

    yield begin
    for program in programs:
        program.kill()
        program.communicate()


@pytest.mark.parametrize("command", ["eval", "segment", "submit", "train"])
def test_the_second_is_refused(
    command: str, tmp_path: Path, hold: Callable[[Path], subprocess.Popen[str]]
) -> None:
    folder = tmp_path / "out"
    args: list[object]
    if command == "train":
        args = ["train_tiny", "--out", folder]
    elif command == "segment":
        args = ["--demo", "--out", folder]
    elif command == "eval":
        args = [make_kitti(tmp_path / "kitti", {8: 1}), "--out", folder]
    else:
        folder = tmp_path / "a.predictions"
        root = make_kitti(tmp_path / "kitti", dict.fromkeys(range(11, 22), 1), labels=False)
        args = [root, "--incomplete", "--out", tmp_path / "a.zip"]
    hold(folder)
    result = CliRunner().invoke(app, [command, *map(str, args), "--device", "cpu"])
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {folder}: must not be in use, got another process that writes into it; wait for "
        "that, or name another --out\n"
    )
    assert names(folder) == [".running"]


def test_a_killed_holder_is_no_obstacle(
    tmp_path: Path, hold: Callable[[Path], subprocess.Popen[str]]
) -> None:
    program = hold(tmp_path)
    with pytest.raises(ValueError, match="must not be in use"), alone_in(tmp_path):
        pass
    program.kill()
    program.wait()
    assert names(tmp_path) == [".running"]
    with alone_in(tmp_path):
        pass
    assert names(tmp_path) == []


def test_a_folder_that_stays_empty_goes_again(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"), alone_in(tmp_path / "a"):
        raise RuntimeError("mine")
    with alone_in(tmp_path / "b"):
        (tmp_path / "b" / "c").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
