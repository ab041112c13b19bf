"""`sparse3d train`, `eval`, `segment` and `submit` with --device mps, on a GPU that is pretended.

No operator of PyTorch that is wrong on Apple GPUs is called (`metal_emu/pretend.py`), and what
comes out is what the CPU gives.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import metal_emu
import numpy as np
import pytest
import torch
from metal_emu.pretend import pretend

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from kitti_folder import make_kitti
from typer.testing import CliRunner

from sparse3d import _registry
from sparse3d.cli import app
from sparse3d.data.config import load_config
from sparse3d.data.segment import build
from sparse3d.train.logs import read_log
from sparse3d.train.trainer import Trainer

CONFIG = """
recipe:
  model: {in_channels: 4, num_classes: 11, widths: [4, 4, 4, 8, 8, 8, 4, 4, 4],
          encoder_blocks: [1, 1, 1, 1], decoder_blocks: [1, 1, 1, 1]}
  input: {voxel_size: 1.0, rounding: floor, representative: mean, features: [dx, dy, dz, height]}
  classes: [10, 30, 40, 48, 50, 51, 70, 71, 72, 80, 81]
data: {kind: streets, streets: 2, fresh: 0.5, held_out: 1, beams: 8, azimuths: 64}
augment: {rotate: 180, scale: [0.95, 1.05], flip: xy, jitter: 0.01, drop: 0.2, lasermix: 0.3}
loss: {smoothing: 0.02, lovasz: 0.7, power: 0.35}
steps: 4
batch: 2
gradient_clip: 5
average: 0.9
evaluate_every: 3
checkpoint_every: 1
log_every: 1
"""
RUNS = {
    "none": "optimizer: {kind: sgd, rate: 0.05}\nschedule: {kind: one_cycle}\nbalance: 1\n",
    "float16": "optimizer: {kind: adamw, rate: 0.001}\namp: float16\n",
    "bfloat16": "optimizer: {kind: sgd, rate: 0.05}\namp: bfloat16\n",
}
TOLERANCE = {"none": 1e-4, "float16": 2e-2, "bfloat16": 2e-2}


@contextmanager
def mac() -> Iterator[None]:
    """Within it the command finds an Apple GPU."""
    session = metal_emu.Session(metal_emu.fronts()[0], False, metal_emu.Options())
    with pytest.MonkeyPatch.context() as patch, pretend(session), _registry.strict():
        patch.setattr(torch.backends.mps, "is_available", lambda: True)
        yield


def call(*args: object) -> int:
    result = CliRunner().invoke(app, [*map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 130), result.output
    return result.exit_code


def train(config: Path, out: Path, device: str) -> int:
    return call("train", config, "--device", device, "--out", out)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(run / "model.pt", weights_only=True)["model"])


@pytest.mark.parametrize(
    "amp", ["none", "float16", pytest.param("bfloat16", marks=pytest.mark.nightly)]
)
def test_training_is_the_same_as_on_the_cpu(amp: str, tmp_path: Path) -> None:
    """Losses (Lovasz and class weights among them), scores and weights; loss scaling in float16."""
    config, near = tmp_path / "a.yaml", TOLERANCE[amp]
    config.write_text(CONFIG + RUNS[amp])
    train(config, tmp_path / "cpu", "cpu")
    with mac():
        train(config, tmp_path / "mps", "mps")
    logs = [read_log(tmp_path / device / "log.jsonl") for device in ("mps", "cpu")]
    for ours, theirs in zip(*logs, strict=True):
        assert ours.keys() == theirs.keys()
        for name in {"loss", "rate", "miou"} & ours.keys():
            assert ours[name] == pytest.approx(theirs[name], abs=near, rel=near), name
    assert {"loss", "miou"} <= {name for entry in logs[0] for name in entry}
    ours, theirs = weights(tmp_path / "mps"), weights(tmp_path / "cpu")
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=near, atol=near)


def test_an_interrupted_run_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, averages, optimizer and loss scaling go to the disk and back to the GPU."""
    config = tmp_path / "a.yaml"
    config.write_text(CONFIG + RUNS["float16"])
    with mac():
        train(config, tmp_path / "whole", "mps")
        report = Trainer._report

        def interrupt(self: Trainer, log: Any) -> str:
            if self.step == 3:
                raise KeyboardInterrupt
            return report(self, log)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "_report", interrupt)
            assert train(config, tmp_path / "cut", "mps") == 130
        assert train(config, tmp_path / "cut", "mps") == 0
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


RECIPE = """
model: {in_channels: 4, num_classes: 11, widths: [8, 8, 8, 16, 16, 16, 8, 8, 8],
        encoder_blocks: [1, 1, 1, 1], decoder_blocks: [1, 1, 1, 1]}
input: {voxel_size: 2.0, rounding: floor, representative: mean, features: [dx, dy, dz, height],
        devoxelise: DEVOXELISE}
classes: [10, 30, 40, 48, 50, 51, 70, 71, 72, 80, 81]
views: 2
"""


@pytest.mark.parametrize(
    "devoxelise", ["nearest", pytest.param("trilinear", marks=pytest.mark.nightly)]
)
def test_commands_give_the_labels_of_the_cpu(devoxelise: str, tmp_path: Path) -> None:
    """Two views of a scan, both ways back from voxels to points, weights from a file."""
    recipe, checkpoint = tmp_path / "recipe.yaml", tmp_path / "weights.pt"
    recipe.write_text(RECIPE.replace("DEVOXELISE", devoxelise))
    weights = build(load_config(recipe)).state_dict()
    weights["classifier.0.bias"].zero_()  # which would decide alone in a network of chance
    torch.save({"model": weights}, checkpoint)
    kitti = make_kitti(tmp_path / "kitti", {8: 1})
    test = make_kitti(tmp_path / "test", dict.fromkeys(range(11, 22), 1), labels=False)
    for file in (*kitti.rglob("*.bin"), *test.rglob("*.bin")):  # a few points of each
        points, step = (
            np.fromfile(file, np.float32).reshape(-1, 4),
            5 if file.is_relative_to(kitti) else 40,
        )
        points[::step].tofile(file)
    for file in kitti.rglob("*.label"):
        np.fromfile(file, np.uint32)[::5].tofile(file)

    def run(device: str) -> tuple[bytes, dict[str, Any], bytes]:
        out, submitted = tmp_path / device, b""
        options = ("--config", recipe, "--checkpoint", checkpoint, "--device", device, "--out")
        call("segment", kitti / "sequences/08/velodyne/000000.bin", *options, out)
        call("eval", kitti, *options, out / "eval")
        if devoxelise == "nearest":
            call("submit", test, *options, out / "a.zip", "--incomplete")
            with zipfile.ZipFile(out / "a.zip") as entries:
                names = [name for name in entries.namelist() if name.endswith(".label")]
                submitted = b"".join(entries.read(name) for name in names)
        scores = json.loads((out / "eval/results.json").read_text())
        return (out / "000000.label").read_bytes(), scores, submitted

    with mac():
        label, scores, submitted = run("mps")
    assert len(np.unique(np.frombuffer(label, np.uint32))) > 1
    expected = run("cpu")
    assert (label, submitted) == (expected[0], expected[2])
    assert scores["miou"] == expected[1]["miou"]
