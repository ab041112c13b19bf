"""Workers that do not fork: Python 3.14 starts them through a server, macOS anew."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from faults.commands import run
from kitti_folder import make_kitti

METHODS = ("spawn", "forkserver")

COMMAND = """
    import multiprocessing, sys
    multiprocessing.set_start_method(sys.argv.pop(1))
    from sparse3d._entry import main
    sys.exit(main())
"""

LOADER = """
    import multiprocessing, sys
    multiprocessing.set_start_method(sys.argv[1])
    import torch
    from torch.utils.data import DataLoader
    import sparse3d
    import sparse3d.nn as spnn

    def scene(seed):
        torch.manual_seed(seed)
        sites = torch.rand(1, 9, 9, 9).lt(0.2).nonzero().int()
        return sparse3d.SparseConvTensor(torch.randn(len(sites), 4), sites, [9, 9, 9], 1)

    layer = spnn.SubMConv3d(4, 2, 3)
    scenes = [scene(seed) for seed in range(4)]
    layer(scenes[0])  # the pool of threads runs before the workers start
    for workers in (0, 2):
        loader = DataLoader(scenes, batch_size=2, num_workers=workers, collate_fn=sparse3d.collate)
        found = [layer(batch).features for batch in loader]
        assert [len(part) for part in found] == [
            len(scenes[0]) + len(scenes[1]), len(scenes[2]) + len(scenes[3])
        ]
        for part, first in zip(found, (0, 2)):
            alone = [layer(one).features for one in scenes[first : first + 2]]
            assert torch.equal(part, torch.cat(alone))
"""

RECIPE = """
recipe:
  model: {in_channels: 4, num_classes: 4, widths: [4, 4, 4, 8, 8, 8, 4, 4, 4],
          encoder_blocks: [1, 1, 1, 1], decoder_blocks: [1, 1, 1, 1]}
  input: {voxel_size: 0.5, rounding: floor, representative: mean, features: [dx, dy, dz, height]}
  classes: [40, 48, 50, 70]
data: {kind: streets, streets: 2, held_out: 1, beams: 8, azimuths: 64}
augment: {rotate: 180, drop: 0.2}
optimizer: {kind: adamw, rate: 0.01}
steps: 3
batch: 2
evaluate_every: 3
checkpoint_every: 3
log_every: 1
"""


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    if request.param not in multiprocessing.get_all_start_methods():
        pytest.skip("not on this system")
    return str(request.param)


def test_sparse_tensors_go_through_workers(method: str) -> None:
    status, _, err = run(LOADER, method)
    assert status == 0, err


def command(method: str, *args: object) -> None:
    status, _, err = run(COMMAND, method, *args, "--device", "cpu")
    assert status == 0, err


@pytest.mark.nightly
def test_training_does_not_depend_on_how_workers_start(method: str, tmp_path: Path) -> None:
    for name in ("typer", "rich", "yaml"):
        pytest.importorskip(name)
    (tmp_path / "a.yaml").write_text(RECIPE)
    logs = []
    for workers in (0, 2):
        out = tmp_path / f"run{workers}"
        command(method, "train", tmp_path / "a.yaml", "--out", out, "--workers", workers)
        lines = (out / "log.jsonl").read_text("utf-8").splitlines()
        logs.append([{k: v for k, v in json.loads(line).items() if k in ("step", "loss", "miou")}
                     for line in lines])  # fmt: skip
    assert len(logs[0]) >= 3
    assert logs[0] == logs[1]


@pytest.mark.nightly
def test_scoring_does_not_depend_on_how_workers_start(method: str, tmp_path: Path) -> None:
    for name in ("typer", "rich", "yaml", "matplotlib"):
        pytest.importorskip(name)
    root = make_kitti(tmp_path / "kitti", {8: 3})
    reports = []
    for workers in (0, 2):
        out = tmp_path / f"eval{workers}"
        command(method, "eval", root, "--out", out, "--workers", workers)
        reports.append(json.loads((out / "results.json").read_text("utf-8")))
    assert reports[0]["scans"] == 3
    assert reports[0]["counts"] == reports[1]["counts"]
