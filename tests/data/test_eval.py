"""`sparse3d eval`: the official numbers, whoever counted and however often it was interrupted."""

from __future__ import annotations

import json
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
from sparse3d.data.config import load_config
from sparse3d.data.kitti import read_labels, read_scan
from sparse3d.data.segment import Segmenter

ROOT = Path(__file__).parents[2]
SCANS = 10


@pytest.fixture(scope="module")
def kitti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kitti(tmp_path_factory.mktemp("kitti"), {8: SCANS})


@pytest.fixture(scope="module")
def whole(kitti: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The numbers of one uninterrupted process."""
    out = tmp_path_factory.mktemp("whole")
    result = call(kitti, "--out", out, "--device", "cpu")
    assert result.exit_code == 0, result.output
    return numbers(out)


def call(*args: object) -> Result:
    return CliRunner().invoke(app, ["eval", *map(str, args)])


def numbers(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "results.json").read_text()))


def official(predicted: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """mIoU over 19 classes, and over those that occur: raw labels, written out."""
    merged = {
        252: 10,
        253: 31,
        254: 30,
        255: 32,
        256: 20,
        257: 20,
        258: 18,
        259: 20,
        13: 20,
        16: 20,
        60: 40,
        1: 0,
        52: 0,
        99: 0,
    }
    kinds = [10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81]
    p, t = (np.array([merged.get(v, v) for v in (a & 0xFFFF).tolist()]) for a in (predicted, true))
    p, t = p[t != 0], t[t != 0]
    hit = np.array([((p == k) & (t == k)).sum() for k in kinds])
    union = np.array([((p == k) | (t == k)).sum() for k in kinds])
    iou = hit / np.maximum(union, 1)
    return iou.mean(), iou[union > 0].mean()


@pytest.fixture
def frame(shared: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """The real labelled frame as sequence 08: root, scan, labels."""
    source = shared / "data" / "lidar" / "kitti_spvnas_000000.bin"
    folder = tmp_path / "kitti" / "sequences" / "08"
    for kind, path in (("velodyne", source), ("labels", source.with_suffix(".label"))):
        (folder / kind).mkdir(parents=True)
        (folder / kind / f"000000{path.suffix}").symlink_to(path)
    return tmp_path / "kitti", source, source.with_suffix(".label")


@pytest.mark.data
def test_numbers_of_a_checkpoint_on_a_real_frame(
    frame: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    root, scan, label = frame
    result = call(root, "--out", tmp_path / "o", "--device", "cpu")
    assert result.exit_code == 0, result.output
    points = read_scan(scan)
    segmenter = Segmenter.load(load_config("demo"), None, torch.device("cpu"))
    expected = official(segmenter.predict(points.points), read_labels(label))
    found = numbers(tmp_path / "o")
    assert (found["miou"], found["miou_present"]) == pytest.approx(expected, abs=1e-12)
    assert 0.15 < found["miou"] < 0.3
    assert f"mIoU {expected[0]:.4f} over 19 classes" in result.stdout


@pytest.mark.data
def test_perfect_labels_of_a_real_frame(frame: tuple[Path, Path, Path], tmp_path: Path) -> None:
    root, _, label = frame
    folder = tmp_path / "p" / "sequences" / "08" / "predictions"
    folder.mkdir(parents=True)
    (folder / "000000.label").symlink_to(label)
    result = call(root, "--predictions", tmp_path / "p", "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    found = numbers(tmp_path / "o")
    assert found["miou"] == pytest.approx(13 / 19, abs=1e-12)
    assert (found["miou_present"], found["present"], found["accuracy"]) == (1.0, 13, 1.0)
    assert "mIoU 0.6842 over 19 classes: the official formula" in result.stdout
    assert "mIoU 1.0000 over the 13 that occur" in result.stdout


def test_all_that_it_leaves(kitti: Path, tmp_path: Path, whole: dict[str, Any]) -> None:
    result = call(kitti, "--out", tmp_path, "--device", "cpu", "--workers", 2)
    assert result.exit_code == 0, result.output
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"evaluation.json", "results.json", "confusion.png", "scans-0-of-1.jsonl"}
    assert numbers(tmp_path) == whole
    assert (whole["scans"], whole["broken"], whole["official_split"]) == (SCANS, {}, False)
    assert "sequence 08 holds 10 scans, the benchmark's 4071" in result.stderr
    for word in ("car", "absent, counts 0", "over 19 classes", "that occur", "10 scans"):
        assert word in result.stdout
    again = call(kitti, "--out", tmp_path, "--device", "cpu")
    assert "10 of 10 scans are counted already" in again.stderr
    assert numbers(tmp_path) == whole


def test_points_that_are_no_numbers_are_missed(tmp_path: Path) -> None:
    root = make_kitti(tmp_path / "kitti", {8: 1})
    call(root, "--out", tmp_path / "a", "--device", "cpu", "--views", 1)
    path = root / "sequences" / "08" / "velodyne" / "000000.bin"
    points = np.fromfile(path, "<f4").reshape(-1, 4)
    labels = np.fromfile(root / "sequences" / "08" / "labels" / "000000.label", "<u4")
    cars = np.flatnonzero((labels & 0xFFFF) == 10)[:9]
    points[cars, 2] = np.nan
    points.tofile(path)
    result = call(root, "--out", tmp_path / "b", "--device", "cpu", "--views", 1, "--drop-invalid")
    assert result.exit_code == 0, result.output
    assert "dropped 9 of" in result.stderr
    before, after = (np.array(numbers(tmp_path / n)["counts"]) for n in "ab")
    assert after[:, 1].sum() == before[:, 1].sum()
    assert after[0, 1] == 9


def test_broken_scans_are_named_and_counted(tmp_path: Path) -> None:
    root = make_kitti(tmp_path / "kitti", {8: 3})
    folder = root / "sequences" / "08"
    (folder / "velodyne" / "000000.bin").write_bytes(b"12345")
    labels = np.fromfile(folder / "labels" / "000001.label", "<u4")
    labels[7] = 5
    labels.tofile(folder / "labels" / "000001.label")
    result = call(root, "--out", tmp_path / "o", "--device", "cpu")
    assert result.exit_code == 2
    assert "000000.bin: size must be a multiple of 16 bytes" in result.stderr
    assert (
        "000001.label: labels must hold raw ids of the official map, got 5 at point 7"
        in result.stderr
    )
    assert "2 broken scans not counted: 08/000000, 08/000001" in result.stdout
    found = numbers(tmp_path / "o")
    assert (found["scans"], sorted(found["broken"])) == (1, ["08/000000", "08/000001"])
    strict = call(root, "--out", tmp_path / "s", "--device", "cpu", "--strict")
    assert strict.exit_code == 2
    errors = [line for line in strict.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert errors[0].endswith("stopped by --strict")
    assert not (tmp_path / "s" / "results.json").exists()
    # Mended scans are tried again.
    make_kitti(tmp_path / "good", {8: 3})
    for name in ("velodyne/000000.bin", "labels/000001.label"):
        (folder / name).write_bytes((tmp_path / "good" / "sequences" / "08" / name).read_bytes())
    mended = call(root, "--out", tmp_path / "o", "--device", "cpu")
    assert mended.exit_code == 0
    call(root, "--out", tmp_path / "n", "--device", "cpu")
    assert numbers(tmp_path / "o") == numbers(tmp_path / "n")


def start(*args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sparse3d", "eval", *map(str, args), "--device", "cpu"]
    return subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


INTERRUPTED = pytest.param(signal.SIGINT, marks=pytest.mark.nightly)


@pytest.mark.parametrize("kind", [signal.SIGKILL, INTERRUPTED])
def test_a_stopped_evaluation_goes_on(
    kitti: Path, tmp_path: Path, whole: dict[str, Any], kind: signal.Signals
) -> None:
    process = start(kitti, "--out", tmp_path)
    part = tmp_path / "scans-0-of-1.jsonl"
    deadline = time.monotonic() + 60
    while not part.exists() or part.read_text().count("\n") < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(kind)
    _, stderr = process.communicate()
    if kind == signal.SIGINT:
        assert process.returncode == 130
        assert stderr.splitlines()[-1] == "interrupted; the same command goes on"
    assert not (tmp_path / "results.json").exists()
    done = part.read_text().count("\n")
    assert 2 <= done < SCANS
    with part.open("a") as file:
        file.write('{"scan": "08/000009", "cells": [[1, 1')  # as if it had died within a line
    result = call(kitti, "--out", tmp_path, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert f"{done} of {SCANS} scans are counted already" in result.stderr
    assert numbers(tmp_path) == whole


def test_two_processes_give_the_totals_of_one(
    kitti: Path, tmp_path: Path, whole: dict[str, Any]
) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "sparse3d",
        "eval",
        str(kitti),
        "--out",
        str(tmp_path),
        "--device",
        "cpu",
    ]
    made = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert made.returncode == 0, made.stderr
    parts = [(tmp_path / f"scans-{rank}-of-2.jsonl").read_text().count("\n") for rank in (0, 1)]
    assert parts == [SCANS // 2, SCANS // 2]
    assert numbers(tmp_path) == whole
    assert made.stdout.count("the official formula") == 1
    # One process ends what two have begun.
    part = tmp_path / "scans-1-of-2.jsonl"
    part.write_text("".join(part.read_text().splitlines(keepends=True)[:2]))
    (tmp_path / "results.json").unlink()
    alone = call(kitti, "--out", tmp_path, "--device", "cpu")
    assert f"{SCANS // 2 + 2} of {SCANS} scans are counted already" in alone.stderr
    assert numbers(tmp_path) == whole


def test_records_of_something_else_are_not_mixed_in(kitti: Path, tmp_path: Path) -> None:
    args = (kitti, "--out", tmp_path, "--device", "cpu", "--views", 1)
    assert call(*args).exit_code == 0
    other = call(*args, "--label-map", "spvnas")
    assert other.exit_code == 2
    assert 'got one of label_map "official" instead of "spvnas"' in other.stderr
    fresh = call(*args, "--label-map", "spvnas", "--fresh")
    assert fresh.exit_code == 0
    assert "these are not the official numbers" in fresh.stdout


def test_damaged_records_are_named_or_counted_again(kitti: Path, tmp_path: Path) -> None:
    args = (kitti, "--out", tmp_path, "--device", "cpu", "--views", 1)
    assert call(*args).exit_code == 0
    right = numbers(tmp_path)
    records = tmp_path / "scans-0-of-1.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    odd = json.loads(lines[0]) | {"cells": [[99, 1, 2]]}
    records.write_bytes(json.dumps(odd).encode() + b"\n\xff\xfe\n" + b"".join(lines[2:]))
    again = call(*args)
    assert again.exit_code == 0
    assert f"{SCANS - 2} of {SCANS} scans are counted already" in again.stderr
    assert numbers(tmp_path) == right
    for text in ("[1]", "x", "null"):
        (tmp_path / "evaluation.json").write_text(text)
        result = call(*args)
        assert result.exit_code == 2
        assert result.stderr == (
            f"error: {tmp_path}/evaluation.json: must say what is evaluated, got a damaged file; "
            "begin anew with --fresh\n"
        )
    assert call(*args, "--fresh").exit_code == 0
    empty = call(kitti, "--sequences", ",")
    assert empty.exit_code == 2
    assert "sequences must be numbers as 0,3,8" in " ".join(empty.stderr.split())


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["gone"], "gone: must be SemanticKITTI's folder, got nothing of that name"),
        (["ROOT", "--split", "valid"], "split must be one of"),
        (["ROOT", "--split", "test"], "split must have labels"),
        (["ROOT", "--split", "train"], "got sequences ['08']"),
        (["ROOT", "--sequences", "8,30"], "sequences must be different numbers from 0 to 21"),
        (["ROOT", "--label-map", "mine"], "label_map must be one of"),
        (["ROOT", "--predictions", "gone"], "gone: must be the folder above sequences, got none"),
        (
            ["ROOT", "--predictions", "ROOT"],
            "must hold labels as sequences/08/predictions/000000.label, got none for",
        ),
        (
            ["ROOT", "--config", "minkunet18_w16", "--checkpoint", "DEMO"],
            "must be of shape [32, 3, 3, 3, 16]",
        ),
        (["ROOT", "--checkpoint", "gone.pt"], "gone.pt: cannot be read"),
    ],
)
def test_bad_arguments_are_one_line(
    kitti: Path, tmp_path: Path, args: list[str], words: str
) -> None:
    names = {"ROOT": str(kitti), "DEMO": str(ROOT / "sparse3d" / "weights" / "demo.pt")}
    result = call(*[names.get(arg, arg) for arg in args], "--out", tmp_path / "o")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert not (tmp_path / "o").exists()


def test_nothing_is_written_where_nothing_is_scored(tmp_path: Path) -> None:
    root, out = make_kitti(tmp_path / "kitti", {8: 2}), tmp_path / "o"
    folder = tmp_path / "p" / "sequences" / "08" / "predictions"
    folder.mkdir(parents=True)
    (folder / "000000.label").write_bytes(b"123")
    result = call(root, "--predictions", tmp_path / "p", "--out", out)
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    paths = [folder / "000000.label", folder / "000001.label", root / "sequences"]
    for path, line in zip(paths, lines[-3:], strict=True):
        assert line.startswith(f"error: {path}: ")
        assert line.count(str(tmp_path)) == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--checkpoint", "gone.pt"),
        ("--config", "gone"),
        ("--config", "demo"),  # the default, but given
        ("--device", "gone"),
        ("--views", "3"),
    ],
)
def test_options_of_a_network_are_refused_beside_predictions(
    kitti: Path, tmp_path: Path, option: str, value: str
) -> None:
    result = call(kitti, "--predictions", kitti, option, value, "--out", tmp_path / "o")
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {option} must be left out with --predictions, got {value}; give one of the two\n"
    )
    assert not (tmp_path / "o").exists()
