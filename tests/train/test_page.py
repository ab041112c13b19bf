"""docs/train.md: its commands run, in order, and the first of them shows that training learns."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from kitti_folder import make_kitti
from typer.testing import CliRunner

from sparse3d.cli import app
from sparse3d.train import load_train_config
from sparse3d.train.logs import read_log

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "train.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small data set where the page has it, its commands run in order."""
    make_kitti(tmp_path / "data" / "semantickitti", {8: 2} | dict.fromkeys(range(11, 22), 1))
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        if command.startswith("sparse3d "):
            args = shlex.split(command)[1:]
            if "--check" not in args:  # no network runs
                args += ["--device", "cpu"]
            result = CliRunner().invoke(app, args)
            assert result.exit_code == 0, f"{command}\n{result.output}"
    return tmp_path


def test_commands_run_and_the_first_learns(place: Path) -> None:
    run = place / "out" / "tiny"
    log = read_log(run / "log.jsonl")
    losses = [entry["loss"] for entry in log if "loss" in entry]
    scores = [entry["miou"] for entry in log if "miou" in entry]
    assert losses[-1] < 0.7 * losses[0]
    assert scores[-1] > scores[0] + 0.05
    assert scores[-1] > 0.12  # after 20 steps 0.04 to 0.07
    table = PAGE.split("run's folder")[1].split("##")[0]
    for name in re.findall(r"^\| `(\S+?)`", table, re.MULTILINE):
        assert name == "tensorboard/" or (run / name).exists(), name
    made = {path.relative_to(place / "out").as_posix() for path in (place / "out").rglob("*")}
    assert {"street/demo.png", "eval/results.json", "eval/confusion.png", "submission.zip"} <= made

    code, printed = re.findall(r"^```(?:python|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "train.md", "exec"), {"__name__": "train.md"})
    assert out.getvalue() == printed
    _runs_in_several_processes(place)


def _runs_in_several_processes(place: Path) -> None:
    """What the page gives to torchrun scores as one process does."""
    commands = [c for c in COMMANDS if not c.startswith("sparse3d ")]
    assert [c.split()[0] for c in commands] == ["torchrun"]
    args = [sys.executable, "-m", "torch.distributed.run", *shlex.split(commands[0])[1:]]
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    made = subprocess.run(
        [*args, "--device", "cpu"], cwd=place, env=env, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    shared = (place / "out" / "shared" / "results.json").read_text()
    assert shared == (place / "out" / "eval" / "results.json").read_text()


def test_configs_of_the_page_are_there() -> None:
    names = set(re.findall(r"\btrain_\w+", PAGE))
    assert {"train_tiny", "train_demo", "train_spvnas"} < names
    for name in names:
        load_train_config(name)


def test_links_and_claims() -> None:
    assert (ROOT / "configs" / "README.md").exists()
    assert all(line.startswith(("sparse3d ", "torchrun ")) for line in COMMANDS)
