"""`sparse3d train`: it learns, and what it learns does not depend on how often it was stopped."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from kitti_folder import make_kitti
from typer.testing import CliRunner, Result

from sparse3d.cli import app
from sparse3d.train import load_train_config
from sparse3d.train.logs import read_log
from sparse3d.train.streams import Items, Steps, Streets, one_street, open_stream

ROOT = Path(__file__).parents[2]
STEPS = 12
RECIPE = """
recipe:
  model: {in_channels: 4, num_classes: 11, widths: [4, 4, 4, 8, 8, 8, 4, 4, 4],
          encoder_blocks: [1, 1, 1, 1], decoder_blocks: [1, 1, 1, 1]}
  input: {voxel_size: 0.5, rounding: floor, representative: mean, features: [dx, dy, dz, height]}
  classes: [10, 30, 40, 48, 50, 51, 70, 71, 72, 80, 81]
"""
SMALL = (
    RECIPE
    + f"""
data: {{kind: streets, streets: 6, fresh: 0.25, held_out: 2, beams: 16, azimuths: 128}}
augment: {{rotate: 180, scale: [0.95, 1.05], flip: xy, jitter: 0.01, drop: 0.2, sector: 0.3,
          lasermix: 0.3, polarmix: 0.3}}
loss: {{smoothing: 0.02, lovasz: 0.7, power: 0.35}}
optimizer: {{kind: adamw, rate: 0.01}}
steps: {STEPS}
batch: 2
gradient_clip: 5
average: 0.9
balance: 1
evaluate_every: 5
checkpoint_every: 2
log_every: 3
"""
)


def write(folder: Path, text: str = SMALL, name: str = "a.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def call(*args: object) -> Result:
    return CliRunner().invoke(app, ["train", *map(str, args), "--device", "cpu"])


def trained(folder: Path, *args: object, text: str = SMALL) -> Path:
    folder.mkdir(exist_ok=True)
    result = call(write(folder, text), "--out", folder / "run", *args)
    assert result.exit_code == 0, result.output
    return folder / "run"


def weights(run: Path, name: str = "model.pt") -> dict[str, torch.Tensor]:
    table: dict[str, torch.Tensor] = torch.load(run / name, weights_only=True)["model"]
    return table


def same(one: Path, two: Path) -> bool:
    """Final weights, best weights and logs, bit for bit."""
    for name in ("model.pt", "best.pt"):
        first, second = weights(one, name), weights(two, name)
        if not all(torch.equal(first[key], second[key]) for key in first):
            return False
    return read_log(one / "log.jsonl") == read_log(two / "log.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing interrupted."""
    return trained(tmp_path_factory.mktemp("whole"))


def test_what_a_run_leaves(whole: Path) -> None:
    log = read_log(whole / "log.jsonl")
    assert [e["step"] for e in log if "loss" in e] == [3, 6, 9, 12]
    assert [e["step"] for e in log if "miou" in e] == [5, 10, 12]
    assert len(list((whole / "streets").iterdir())) == 6
    final = torch.load(whole / "model.pt", weights_only=True)
    assert (final["step"], final["config"]) == (STEPS, "a")
    assert final["miou"] == [e["miou"] for e in log if "miou" in e][-1]


def test_workers_change_nothing(whole: Path, tmp_path: Path) -> None:
    assert same(whole, trained(tmp_path, "--workers", 2))


def start(folder: Path) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "sparse3d",
        "train",
        str(write(folder)),
        "--device",
        "cpu",
        "--out",
        str(folder / "run"),
    ]
    return subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def wait_for(process: subprocess.Popen[str], run: Path, step: int) -> None:
    deadline = time.monotonic() + 60
    while not any(entry["step"] >= step for entry in read_log(run / "log.jsonl")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_killed_run_goes_on_to_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for(process, tmp_path / "run", 6)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "run" / "model.pt").exists()
    with (tmp_path / "run" / "log.jsonl").open("a") as file:
        file.write('{"step": 7, "lo')
    result = call(tmp_path / "a.yaml", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    step = int(result.stderr.split("going on from step ")[1].split()[0])
    assert 4 <= step < STEPS
    assert same(whole, tmp_path / "run")


@pytest.mark.nightly
def test_a_terminated_run_saves_and_says_so(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for(process, tmp_path / "run", 3)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    last = stderr.splitlines()[-1]
    assert last.startswith("interrupted at step ")
    assert last.endswith("the same command goes on")
    result = call(tmp_path / "a.yaml", "--out", tmp_path / "run")
    assert f"going on from step {last.split()[3]} of {STEPS}" in result.stderr
    assert same(whole, tmp_path / "run")


def test_a_finished_run_ends_again_the_same(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    before = (run / "log.jsonl").read_text()
    trained(tmp_path)
    assert (run / "log.jsonl").read_text() == before
    assert same(whole, run)


def test_a_folder_of_another_config_is_refused(whole: Path, tmp_path: Path) -> None:
    other = write(tmp_path, SMALL.replace("lovasz: 0.7", "lovasz: 0.5"))
    result = call(other, "--out", whole)
    assert result.exit_code == 2
    assert (
        "got another loss.lovasz (0.7, now 0.5); name another --out, or begin anew" in result.stderr
    )
    assert len(result.stderr.splitlines()) == 1


def test_it_starts_from_weights_that_fit(whole: Path, tmp_path: Path) -> None:
    one = SMALL.replace(f"steps: {STEPS}", "steps: 1").replace("rate: 0.01", "rate: 0")
    one = one.replace("balance: 1\n", "").replace("average: 0.9\n", "")
    run = trained(tmp_path, "--start", whole / "model.pt", text=one)
    old, new = weights(whole), weights(run)
    assert all(
        torch.equal(old[key], new[key]) for key in old if "running" not in key and "num_" not in key
    )
    wide = write(tmp_path, SMALL.replace("widths: [4, 4,", "widths: [8, 8,"), "b.yaml")
    result = call(wide, "--out", tmp_path / "b", "--start", whole / "model.pt")
    assert result.exit_code == 2
    assert "must be of shape [8, 3, 3, 3, 4], got [4, 3, 3, 3, 4]" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("amp", ["float16", "bfloat16"])
def test_mixed_precision_learns_and_goes_on(tmp_path: Path, amp: str) -> None:
    text = SMALL.replace("evaluate_every: 5", f"amp: {amp}").replace("balance: 1\n", "")
    text = text.replace(f"steps: {STEPS}", "steps: 6")
    run = trained(tmp_path, text=text)
    losses = [entry["loss"] for entry in read_log(run / "log.jsonl") if "loss" in entry]
    assert losses[-1] < losses[0]
    state = torch.load(run / "last.pt", weights_only=True)
    assert bool(state["scaler"]) == (amp == "float16")
    assert all(v.dtype in (torch.float32, torch.int64) for v in state["model"].values())


def test_scans_of_semantickitti(tmp_path: Path) -> None:
    root = make_kitti(tmp_path / "kitti", {0: 5, 8: 2})
    bad = root / "sequences" / "00" / "velodyne" / "000003.bin"
    bad.write_bytes(b"12345")
    text = (
        RECIPE
        + """
data: {kind: kitti, root: nowhere, train: [0], val_scans: 1}
augment: {lasermix: 0.5, polarmix: 0.5}
optimizer: {kind: sgd, rate: 0.02}
schedule: {kind: one_cycle, warmup: 0.3}
epochs: 3
batch: 2
max_voxels: 1000
"""
    )
    config = write(tmp_path, text)
    result = call(config, "--root", root, "--out", tmp_path / "run")
    assert result.exit_code == 2  # it was trained, but on less than it was told
    assert (tmp_path / "run" / "model.pt").exists()
    assert result.stderr.count("size must be a multiple of 16") == 1
    assert f"1 broken scans were left out: {bad}" in result.stderr
    log = read_log(tmp_path / "run" / "log.jsonl")
    assert log[-1]["step"] == 7  # 3 epochs of 5 scans, 2 a step
    strict = call(config, "--root", root, "--out", tmp_path / "strict", "--strict")
    assert strict.exit_code == 2
    assert strict.stderr.startswith(f"error: {bad}: size must be")
    assert strict.stderr.endswith("stopped by --strict\n")
    gone = call(config, "--out", tmp_path / "gone")
    assert gone.exit_code == 2
    assert (
        gone.stderr == "error: nowhere: must be SemanticKITTI's folder, got nothing of that name\n"
    )


def test_tensorboard_when_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SMALL.replace(f"steps: {STEPS}", "steps: 2\ntensorboard: true")
    monkeypatch.setattr("sparse3d.train.logs.find_spec", lambda name: None)
    result = call(write(tmp_path, text), "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert (
        "tensorboard must be installed for tensorboard: true, got no such package" in result.stderr
    )
    assert len(result.stderr.splitlines()) == 1
    monkeypatch.undo()
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = trained(tmp_path, text=text)
    events = reader.EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    assert {"loss", "rate", "miou", "iou/road"} <= set(events.Tags()["scalars"])
    assert events.Scalars("loss")[-1].step == 2


def test_a_loss_that_explodes_is_an_error(tmp_path: Path) -> None:
    text = SMALL.replace("kind: adamw, rate: 0.01", "kind: sgd, rate: 1e3")
    for line in ("gradient_clip: 5\n", "evaluate_every: 5\n"):
        text = text.replace(line, "")
    text = text.replace(f"steps: {STEPS}", "steps: 20\nschedule: {kind: constant}")
    result = call(write(tmp_path, text), "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "loss must stay finite, got" in result.stderr
    assert "lower optimizer.rate" in result.stderr


def test_streets_come_by_number(tmp_path: Path) -> None:
    streets = Streets(3, 0.25, 0, tmp_path, 16, 64)
    first = [streets.cloud(count) for count in range(16)]
    again = Streets(3, 0.25, 0, tmp_path / "b", 16, 64)
    for count in (15, 0, 8, 7):
        np.testing.assert_array_equal(again.cloud(count).points, first[count].points)
    seeds = {bytes(one_street(1_000_000 + number, 16, 64).points): number for number in range(3)}
    numbers = [seeds[bytes(cloud.points)] for cloud in first]
    assert [numbers[0], numbers[4], numbers[8]] == [0, 1, 2]
    assert all(number <= count // 4 for count, number in enumerate(numbers))


def test_streets_of_another_lidar_are_others(tmp_path: Path) -> None:
    """A run that is begun anew in the folder of an older one takes none of its streets."""
    text = SMALL.replace("beams: 16, azimuths: 128", "beams: 8, azimuths: 64")
    first = open_stream(load_train_config(write(tmp_path)), tmp_path / "run").cloud(0)
    second = open_stream(load_train_config(write(tmp_path, text)), tmp_path / "run").cloud(0)
    assert len(second.points) < len(first.points) / 2


def test_a_damaged_street_is_simulated_again(tmp_path: Path) -> None:
    def first() -> np.ndarray:
        return open_stream(load_train_config(write(tmp_path)), tmp_path).cloud(0).points

    right = first()
    (kept,) = (tmp_path / "streets").iterdir()
    for raw in (b"", b"no archive", kept.read_bytes()[:-2000]):
        kept.write_bytes(raw)
        assert np.array_equal(first(), right)


def test_a_stream_can_be_sent_to_workers_that_do_not_fork(tmp_path: Path) -> None:
    config = load_train_config(write(tmp_path, SMALL))
    items = Items(open_stream(config, tmp_path), config)
    again = pickle.loads(pickle.dumps(items))
    np.testing.assert_array_equal(again[3].features, items[3].features)


def test_processes_share_the_clouds_of_a_step() -> None:
    alone = [count for step in Steps(2, 5, 4) for count in step]
    assert alone == list(range(8, 20))
    pair = [list(Steps(2, 5, 2, rank, 2)) for rank in (0, 1)]
    assert [a + b for a, b in zip(*pair, strict=True)] == list(Steps(2, 5, 4))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL.replace("batch: 2", "bach: 2"), "got bach; write batch"),
        (
            SMALL.replace("widths: [4,", "widths: ["),
            "widths and blocks must have 9, 4 and 4 entries",
        ),
        (SMALL.replace("features: [dx", "features: [color"), "features must come from"),
        (SMALL.replace("num_classes: 11", "num_classes: 5"), "num_classes must be 11"),
        (
            SMALL.replace("classes: [10,", "classes: 5 # ["),
            "must be a list of SemanticKITTI raw ids",
        ),
    ],
)
def test_bad_configs_are_one_line(tmp_path: Path, text: str, words: str) -> None:
    result = call(write(tmp_path, text), "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr
    assert not (tmp_path / "run").exists()


def as_json(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "results.json").read_text()))


def test_its_weights_go_through_eval(whole: Path, tmp_path: Path) -> None:
    kitti = make_kitti(tmp_path / "kitti", {8: 1})
    args = [
        "eval",
        kitti,
        "--checkpoint",
        whole / "best.pt",
        "--config",
        whole / "recipe.yaml",
        "--device",
        "cpu",
        "--out",
        tmp_path / "eval",
    ]
    result = CliRunner().invoke(app, list(map(str, args)))
    assert result.exit_code == 0, result.output
    assert as_json(tmp_path / "eval")["points"] > 1000


def test_a_root_is_refused_where_streets_are_simulated(tmp_path: Path) -> None:
    config = write(tmp_path)
    result = call(config, "--root", tmp_path, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: --root must be left out for data.kind streets of {config}, got {tmp_path}\n"
    )
    assert not (tmp_path / "run").exists()
