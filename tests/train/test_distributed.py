"""Two processes on one machine: the same step as one process with both halves of the batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from typer.testing import CliRunner

from sparse3d.cli import app
from sparse3d.train import synchronise
from sparse3d.train.logs import read_log

ROOT = Path(__file__).parents[2]
TEXT = """
recipe:
  model: {in_channels: 4, num_classes: 11, widths: [4, 4, 4, 8, 8, 8, 4, 4, 4],
          encoder_blocks: [1, 1, 1, 1], decoder_blocks: [1, 1, 1, 1]}
  input: {voxel_size: 0.5, rounding: floor, representative: mean, features: [dx, dy, dz, height]}
  classes: [10, 30, 40, 48, 50, 51, 70, 71, 72, 80, 81]
data: {kind: streets, streets: 6, held_out: 2, beams: 16, azimuths: 128}
augment: {rotate: 180, drop: 0.5}
loss: {smoothing: 0.02, power: 0.35}
optimizer: {kind: sgd, rate: 0.02, momentum: 0}
schedule: {kind: constant, warmup: 0}
steps: 4
log_every: 1
checkpoint_every: 2
"""


def arguments(config: Path, out: Path) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = ["--nproc-per-node", "2", "-m", "sparse3d", "train", str(config), "--out", str(out)]
    return [*launcher, *command, "--device", "cpu"]


def torchrun(config: Path, out: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments(config, out), cwd=ROOT, capture_output=True, text=True, check=False, timeout=170
    )


def test_two_processes_step_as_one(tmp_path: Path) -> None:
    alone, pair = tmp_path / "alone.yaml", tmp_path / "pair.yaml"
    alone.write_text(TEXT + "batch: 2\n")
    pair.write_text(TEXT + "batch: 1\n")
    made = torchrun(pair, tmp_path / "two")
    assert made.returncode == 0, made.stderr
    args = ["train", str(alone), "--out", str(tmp_path / "one"), "--device", "cpu"]
    assert CliRunner().invoke(app, args).exit_code == 0
    one, two = (
        torch.load(tmp_path / n / "model.pt", weights_only=True)["model"] for n in ("one", "two")
    )
    begun = torch.load(tmp_path / "one" / "last.pt", weights_only=True)
    assert begun["step"] == 4
    for key, value in one.items():
        torch.testing.assert_close(
            two[key], value, rtol=2e-3, atol=2e-5, msg=lambda m, k=key: f"{k}: {m}"
        )
    first, second = (read_log(tmp_path / n / "log.jsonl") for n in ("one", "two"))
    assert [e["step"] for e in first] == [e["step"] for e in second]
    for a, b in zip(first, second, strict=True):
        assert b.get("loss", 0) == pytest.approx(a.get("loss", 0), rel=1e-4)
    assert made.stdout.count("best mIoU") == 1
    # A run of two goes on with two.
    result = CliRunner().invoke(
        app, ["train", str(pair), "--out", str(tmp_path / "two"), "--device", "cpu"]
    )
    assert result.exit_code == 2
    assert "got another processes (2, now 1)" in result.stderr


@pytest.mark.nightly
def test_two_killed_processes_go_on_to_the_same_bytes(tmp_path: Path) -> None:
    config = tmp_path / "a.yaml"
    config.write_text(TEXT.replace("steps: 4", "steps: 12").replace("momentum: 0", "momentum: 0.9"))
    assert torchrun(config, tmp_path / "whole").returncode == 0
    out = tmp_path / "killed"
    process = subprocess.Popen(
        arguments(config, out), cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL
    )
    while not any(entry["step"] >= 5 for entry in read_log(out / "log.jsonl")):
        assert process.poll() is None
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "model.pt").exists()
    made = torchrun(config, out)
    assert made.returncode == 0, made.stderr
    assert "going on from step " in made.stderr
    one, two = (
        torch.load(n / "model.pt", weights_only=True)["model"] for n in (tmp_path / "whole", out)
    )
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert read_log(tmp_path / "whole" / "log.jsonl") == read_log(out / "log.jsonl")


def test_alone_it_is_the_plain_norm() -> None:
    import sparse3d.nn as spnn

    torch.manual_seed(0)
    plain = torch.nn.Sequential(spnn.SparseBatchNorm(3))
    with torch.no_grad():
        plain[0].weight.uniform_()
    twin = synchronise(torch.nn.Sequential(spnn.SparseBatchNorm(3)))
    twin.load_state_dict(plain.state_dict())
    rows = torch.randn(9, 3)
    assert type(twin[0]) is not type(plain[0])
    assert torch.equal(plain(rows), twin(rows))
    assert all(
        torch.equal(a, b)
        for a, b in zip(plain.state_dict().values(), twin.state_dict().values(), strict=True)
    )
    assert torch.equal(plain.eval()(rows), twin.eval()(rows))
