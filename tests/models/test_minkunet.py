"""MinkUNet: families, shapes, gradients, skips, and one compiled graph for all scenes."""

import copy
import subprocess
import sys

import pytest
import torch
from torch._dynamo.utils import counters

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor
from sparse3d.data.config import load_config
from sparse3d.models.minkunet import (
    Down,
    MinkUNet,
    Residual,
    Up,
    conv_block,
    scaled_widths,
)

NARROW = [8, 8, 8, 12, 16, 16, 12, 8, 8]
FAMILIES = {
    "minkunet_spvnas_cr0p5": scaled_widths(0.5),
    "minkunet_spvnas_cr0p64": scaled_widths(0.64),
    "minkunet_spvnas_cr1p0": scaled_widths(1.0),
    "minkunet18_w16": [16, 16, 32, 64, 128, 128, 64, 48, 48],
    "minkunet18_w20": [20, 20, 40, 81, 163, 163, 81, 61, 61],
    "minkunet18_w32": list(scaled_widths(1.0)),
    "minkunet34_w32": list(scaled_widths(1.0)),
    "minkunet34v2_w32": list(scaled_widths(1.0)),
}
# spvnas publishes 5.5, 8.8 and 21.7 million parameters.
MILLIONS = {
    "minkunet_spvnas_cr0p5": 5.5,
    "minkunet_spvnas_cr0p64": 8.8,
    "minkunet_spvnas_cr1p0": 21.7,
}


def scene(sites, seed, channels=4, side=24):
    generator = torch.Generator().manual_seed(seed)
    cells = torch.randint(0, side, (sites, 3), generator=generator)
    indices = torch.unique(torch.cat([torch.zeros(sites, 1).long(), cells], 1), dim=0).int()
    features = torch.randn(len(indices), channels, generator=generator)
    return SparseConvTensor(features, indices, [side] * 3, 1)


@pytest.mark.parametrize("name", FAMILIES)
def test_config_builds_the_published_family(name):
    config = load_config(name)
    assert list(config.model["widths"]) == FAMILIES[name]
    assert len(config.classes) == 19
    with torch.device("meta"):
        net = MinkUNet(**config.model)
    if name in MILLIONS:
        count = sum(parameter.numel() for parameter in net.parameters())
        assert round(count / 1e6, 1) == pytest.approx(MILLIONS[name], abs=0.11)


def test_spvnas_widths_truncate():
    assert scaled_widths(0.64) == [20, 20, 40, 81, 163, 163, 81, 61, 61]


@pytest.mark.parametrize("head", ["v1", "v2"])
def test_every_voxel_gets_logits_and_every_parameter_a_gradient(head):
    net = MinkUNet(4, 7, NARROW, head=head)
    x = scene(300, 0)
    logits = net(x)
    assert logits.shape == (len(x), 7)
    logits.square().sum().backward()
    silent = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()]
    assert not silent


def test_points_take_interpolated_logits():
    net = MinkUNet(4, 7, NARROW).eval()
    x = scene(300, 1)
    with torch.no_grad():
        voxels = net(x)
        points = net(x, x.indices.float())
    torch.testing.assert_close(points, voxels, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sites", [0, 1, 2])
def test_tiny_clouds_pass_in_training_and_eval(sites):
    net = MinkUNet(4, 3, NARROW)
    indices = torch.arange(sites, dtype=torch.int32)[:, None] * torch.tensor([[0, 1, 1, 1]]).int()
    x = SparseConvTensor(torch.randn(sites, 4), indices.int(), None, 1)
    net(x).sum().backward()
    assert net.eval()(x).shape == (sites, 3)
    assert all(p.isfinite().all() for p in net.state_dict().values() if p.is_floating_point())


def test_odd_grids_lose_no_site():
    net = MinkUNet(4, 3, NARROW).eval()
    indices = torch.tensor([[0, 4, 4, 4], [0, 0, 0, 0]], dtype=torch.int32)
    features = torch.randn(2, 4)
    with torch.no_grad():
        tight = net(SparseConvTensor(features, indices, [5, 5, 5], 1))
        roomy = net(SparseConvTensor(features, indices, [64, 64, 64], 1))
    torch.testing.assert_close(tight, roomy)


def test_wrong_widths_are_named():
    with pytest.raises(ValueError, match="widths and blocks must have 9, 4 and 4 entries, got 3"):
        MinkUNet(widths=[1, 2, 3])
    with pytest.raises(ValueError, match="head must be one of"):
        MinkUNet(head="v3")


def test_fuse_keeps_the_numbers():
    net = MinkUNet(4, 5, NARROW)
    x = scene(300, 2)
    net(x)
    net.eval()
    fused = spnn.fuse(net)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), net(x), atol=1e-5, rtol=1e-5)
    norms = [m for m in fused.modules() if isinstance(m, spnn.SparseBatchNorm)]
    assert not norms


WHOLE_FRAME = """
import resource, sys, time
import numpy as np, torch
import sparse3d
from sparse3d import _registry
from sparse3d.models.minkunet import MinkUNet
torch.set_num_threads(2)
points = torch.from_numpy(np.fromfile(sys.argv[1], np.float32).reshape(-1, 4))
net = MinkUNet().eval()
with _registry.force("reference"), torch.no_grad():
    start = time.perf_counter()
    cells = sparse3d.quantize(points[:, :3], 0.05, rounding="round")
    cells = torch.nn.functional.pad(cells - cells.amin(0), (1, 0))
    voxels = sparse3d.voxelize(points, cells, "first")
    net(sparse3d.SparseConvTensor(voxels.features, voxels.indices, None, 1))
    print(time.perf_counter() - start)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak * (1 if sys.platform == "darwin" else 1024))
"""


@pytest.mark.nightly
@pytest.mark.data
def test_reference_labels_a_whole_frame_in_twenty_seconds_and_four_gigabytes(shared):
    frame = shared / "data" / "lidar" / "kitti_spvnas_000000.bin"
    command = [sys.executable, "-c", WHOLE_FRAME, str(frame)]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak = map(float, made.stdout.split())
    assert seconds <= 20
    assert peak <= 4e9


class SmallUNet(torch.nn.Module):
    """One level down and up around residual blocks: MinkUNet's parts, quick to compile."""

    def __init__(self):
        super().__init__()
        self.stem = spnn.SparseSequential(*conv_block(4, 8, "fine"))
        self.down = Down(8, 8, "down")
        self.middle = Residual(8, 12, "coarse")
        self.up = Up(12, 8, "down")
        self.out = Residual(16, 8, "fine")
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        fine = self.stem(x)
        up = self.up(self.middle(self.down(fine)))
        joined = up.replace_feature(torch.cat([up.features, fine.features], 1))
        return self.head(self.out(joined).features)


@pytest.mark.parametrize("training", [False, True])
def test_prepared_residual_unet_compiles_to_one_graph_for_six_scenes(training):
    torch.manual_seed(0)
    net = SmallUNet().train(training)
    eager = copy.deepcopy(net)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(net, fullgraph=True, dynamic=True, backend="aot_eager")
    for seed, sites in enumerate((400, 700, 1100, 1500, 1900, 2500)):
        x = spnn.prepare(net, scene(sites, seed, side=16))
        with torch.set_grad_enabled(training):
            out, expected = compiled(x), eager(x)
        torch.testing.assert_close(out, expected)
        if training:
            for value in (out, expected):
                value.square().mean().backward()
    assert counters["stats"]["unique_graphs"] == 1
    for (name, left), right in zip(net.named_parameters(), eager.parameters(), strict=True):
        if training:
            torch.testing.assert_close(left.grad, right.grad, atol=1e-4, rtol=1e-4, msg=name)
