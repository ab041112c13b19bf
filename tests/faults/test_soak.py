"""Training step after step on changing clouds: memory stays flat, the losses repeat to the byte."""

from __future__ import annotations

import pytest
from faults.commands import run

from sparse3d import _registry

SOAK = """
    import gc, hashlib, struct, sys
    import numpy as np
    import torch
    import sparse3d.nn as spnn
    from sparse3d import SparseConvTensor, _registry, voxelize, quantize

    torch.set_num_threads(1)
    _registry.force(sys.argv[1]).__enter__()
    STEPS = int(sys.argv[2])

    def resident():
        gc.collect()
        for line in open("/proc/self/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024

    def clouds():
        rng = np.random.default_rng(7)
        while True:
            points = rng.uniform(-4, 4, (int(rng.integers(300, 3000)), 3)).astype(np.float32)
            yield torch.from_numpy(points)

    def train():
        torch.manual_seed(3)
        net = spnn.SparseSequential(
            spnn.SubMConv3d(3, 16, 3, indice_key="s"), spnn.SparseBatchNorm(16), spnn.SparseReLU(),
            spnn.SparseConv3d(16, 24, 2, 2, indice_key="d"), spnn.SparseReLU(),
            spnn.SparseMaxPool3d(2, 2, indice_key="p"), spnn.SparseInverseConv3d(24, 24, 2, "p"),
            spnn.SparseInverseConv3d(24, 8, 2, "d"), spnn.SubMConv3d(8, 3, 3, indice_key="s"),
        )
        optimizer = torch.optim.Adam(net.parameters(), 1e-2)
        digest, losses, marks = hashlib.sha256(), [], []
        for step, points in zip(range(STEPS), clouds()):
            cells = torch.nn.functional.pad(quantize(points, 0.5), (1, 0))
            voxels = voxelize(points, cells)
            x = SparseConvTensor(voxels.features, voxels.indices, None, 1)
            loss = (net(x).features - voxels.features).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            digest.update(struct.pack("f", loss.item()))
            if step % (STEPS // 5) == STEPS // 5 - 1:
                marks.append(resident())
        assert losses[-1] < losses[0], losses
        return digest.hexdigest(), marks

    first, marks = train()
    second, again = train()
    assert first == second, "other losses"
    rise = max(again) - marks[0]
    print(f"{rise:.1f} MB from {marks[0]:.1f}")
    assert rise < 12, (marks, again)
"""


@pytest.mark.parametrize("steps", [50, pytest.param(1000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_soak(name: str, steps: int) -> None:
    if name != "reference" and _registry.load(name) is not None:
        pytest.skip("no cpu library")
    status, out, err = run(SOAK, name, steps, timeout=1800)
    assert status == 0, err
    assert "MB from" in out
