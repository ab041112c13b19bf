"""A whole MinkUNet compiles to one graph, whatever the scan: no break, no recompilation."""

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor
from sparse3d.models.minkunet import MinkUNet

NARROW = [8, 8, 8, 12, 16, 16, 12, 8, 8]
ONCE = (1, 1, 1, 1)


def scan(seed):
    """Another number of sites, another grid and another number of samples for each seed."""
    generator = torch.Generator().manual_seed(seed)
    side, batch = 40 + 3 * seed, 1 + seed % 3
    cell = torch.randperm(batch * side**3, generator=generator)[: 900 + 137 * seed]
    columns = [cell // side**3, cell // side**2 % side, cell // side % side, cell % side]
    features = torch.randn(len(cell), 4, generator=generator)
    return SparseConvTensor(features, torch.stack(columns, 1).int(), [side] * 3, batch)


def compiled_over_ten_scans(backend, training, **blocks):
    net = MinkUNet(widths=NARROW, **blocks).train(training)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.normal_(module.running_mean, 0, 0.2)
    eager = copy.deepcopy(net)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(net, fullgraph=True, dynamic=True, backend=backend)
    for seed in range(10):
        x = spnn.prepare(net, scan(seed))
        with torch.set_grad_enabled(training):
            out, expected = compiled(x), eager(x)
        torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)
        if training:
            for value in (out, expected):
                value.square().mean().backward()
    for left, right in zip(net.parameters(), eager.parameters(), strict=True):
        if training:
            torch.testing.assert_close(left.grad, right.grad, atol=1e-3, rtol=1e-3)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


@pytest.mark.slow
def test_a_whole_minkunet_is_one_graph_for_ten_scans():
    compiled_over_ten_scans("aot_eager", False, encoder_blocks=ONCE, decoder_blocks=ONCE)


@pytest.mark.nightly
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("compiler", ["aot_eager", "inductor"])
def test_the_published_depth_is_one_graph_for_ten_scans(compiler, training):
    compiled_over_ten_scans(compiler, training)


def test_layers_of_one_geometry_and_two_grids_keep_maps_of_their_own():
    x = scan(0)
    sites = x.coordinates
    up = spnn.SparseConvTranspose3d(4, 4, 2, 3, indice_key="a")
    wider = spnn.SparseConvTranspose3d(4, 4, 2, 3, indice_key="b", output_padding=1)
    with torch.no_grad():
        first, second = up(x), wider(x)
        again = up(x)
    assert first.spatial_shape != second.spatial_shape
    assert again.coordinates is first.coordinates
    assert len(sites._maps) == 2
