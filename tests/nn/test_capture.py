"""`capture`: the network in rooms of fixed size equals the network; on a GPU it is one graph."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry
from sparse3d.models.minkunet import MinkUNet
from sparse3d.nn import _room, _room_norm

GPU = torch.cuda.is_available() and _registry.load("cuda") is None
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda])] if GPU else ["cpu"]
EXTENT, BATCH = 16, 2


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def scene(rows: int, device: str, channels: int = 4) -> SparseConvTensor:
    cells = torch.randperm(BATCH * EXTENT**3)[:rows].sort().values
    columns = [cells // EXTENT**3, cells // EXTENT**2, cells // EXTENT, cells]
    indices = torch.stack([columns[0], *(c % EXTENT for c in columns[1:])], 1).int()
    features = torch.randn(rows, channels)
    return SparseConvTensor(features.to(device), indices.to(device), [EXTENT] * 3, BATCH)


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    return torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_unet_on_scenes_of_every_size(device: str) -> None:
    """Larger ones than the room are captured anew; the smallest are empty."""
    net = MinkUNet(4, 5, (8, 8, 16, 16, 16, 16, 16, 8, 8)).eval().to(device)
    ready = spnn.capture(net, scene(300, device))
    for rows in (300, 250, 370, 900, 20, 1, 0, 800):
        x = scene(rows, device)
        out = ready(x)
        assert out.shape == (rows, 5)
        assert close(out, net(x))


def strided(rule: str) -> nn.Module:
    return spnn.SparseSequential(
        spnn.SubMConv3d(4, 8, 3, indice_key="a"),
        nn.ReLU(),
        spnn.SparseConv3d(8, 8, 3, 3, indice_key="d", rule=rule),
        spnn.SubMConv3d(8, 8, (1, 3, 3), dilation=2),
    )


@torch.no_grad()
@pytest.mark.parametrize("rule", ["footprint", "floor"])
def test_sites_that_the_network_makes(rule: str, device: str) -> None:
    """Cells that the grid cuts off are made under rule floor alone."""
    net = strided(rule).eval().to(device)
    ready = spnn.capture(net, scene(200, device))
    for rows in (200, 90, 0):
        x = scene(rows, device)
        ours, theirs = ready(x), net(x)
        assert torch.equal(ours.indices, theirs.indices)
        assert ours.spatial_shape == theirs.spatial_shape
        assert close(ours.features, theirs.features)


@torch.no_grad()
def test_results_stay_when_the_next_scene_comes(device: str) -> None:
    net = strided("floor").eval().to(device)
    ready = spnn.capture(net, scene(200, device))
    first = ready(scene(200, device)).features
    kept = first.clone()
    ready(scene(150, device))
    assert torch.equal(first, kept)


@torch.no_grad()
def test_parameters_are_read_at_each_call(device: str) -> None:
    net = strided("floor").eval().to(device)
    x = scene(100, device)
    ready = spnn.capture(net, x)
    net[0].weight.mul_(2)
    assert close(ready(x).features, net(x).features)


def test_refusals(device: str) -> None:
    x = scene(60, device)
    net = strided("floor").to(device)
    with pytest.raises(ValueError, match="model must be in eval mode to be captured, got training"):
        spnn.capture(net.train(), x)
    overlapping = spnn.SparseConv3d(4, 4, 3, 2, 1).eval().to(device)
    pools = (spnn.SparseMaxPool3d(2, 2), spnn.SparseGlobalMaxPool())
    for layer in (overlapping, *pools):
        with pytest.raises(
            ValueError, match="layer must be a convolution, submanifold, inverse, 1 x 1, or"
        ):
            spnn.capture(layer.eval(), x)
    ready = spnn.capture(net.eval(), x)
    with pytest.raises(ValueError, match="x must be like the scene captured"):
        ready(x.replace_feature(x.features.double()))
    mixed = SparseConvTensor(x.features, x.indices.flip(0), x.spatial_shape, BATCH)
    with pytest.raises(ValueError, match="x must be in order of batch ids"):
        ready(mixed)


def test_a_training_step(device: str) -> None:
    """Loss, parameters and statistics go the way of the same steps layer by layer."""
    mine = spnn.SparseSequential(
        spnn.SubMConv3d(4, 8, 3, bias=False, indice_key="a"),
        nn.BatchNorm1d(8),
        spnn.SparseReLU(),
        spnn.SparseConv3d(8, 8, 2, 2, bias=False, indice_key="d", rule="floor"),
        spnn.SparseBatchNorm(8),
        spnn.SparseInverseConv3d(8, 6, 2, "d", bias=False),
        spnn.SubMConv3d(6, 5, 1),
    ).to(device)
    theirs = copy.deepcopy(mine)

    def step_of(net: nn.Module) -> Callable[..., torch.Tensor]:
        capturable = device == "cuda"
        optimiser = torch.optim.Adam(net.parameters(), 1e-2, capturable=capturable)

        def step(x: SparseConvTensor, labels: torch.Tensor) -> torch.Tensor:
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(net(x).features, labels)
            loss.backward()
            optimiser.step()
            return loss

        return step

    def labels(rows: int) -> torch.Tensor:
        return torch.randint(0, 5, (rows,)).to(device)

    first, target = scene(200, device), labels(200)
    ours, plain = step_of(mine), step_of(theirs)
    ready = spnn.capture(ours, first, target, room=1.5, train=True)
    for _ in range(1 if device == "cpu" else 3):
        plain(first, target)
    for rows in (200, 150, 280, 60):
        x, target = scene(rows, device), labels(rows)
        assert torch.allclose(ready(x, target), plain(x, target), rtol=1e-4)
    with pytest.raises(ValueError, match="x must be within the room that was captured, got 400 r"):
        ready(scene(400, device), labels(400))
    for a, b in zip(mine.state_dict().values(), theirs.state_dict().values(), strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def test_norms_mask_what_is_not_known_to_be_zero() -> None:
    """Rows that are no sites: a layer leaves zeros there unless it adds something."""
    rows = torch.cat([scene(20, "cpu").indices, _room.nowhere(5, 4, torch.device("cpu"))])
    room = _room.Room(rows, [EXTENT] * 3, BATCH, _room.Rooms())
    x = SparseConvTensor(torch.randn(25, 4), rows, [EXTENT] * 3, BATCH, check=False)
    x._coordinates = room
    bare = spnn.SubMConv3d(4, 6, 3, bias=False)(x).features
    assert room.has_zeros(bare)
    assert not bare[20:].any()
    assert not room.has_zeros(bare.clone())
    for layer in (spnn.SubMConv3d(4, 6, 3), spnn.SubMConv3d(4, 6, 1, bias=False)):
        assert not room.has_zeros(layer(x).features)
    norm = nn.BatchNorm1d(6)
    for features in (bare, bare + 1):
        expected = nn.functional.batch_norm(features[:20], None, None, training=True)
        assert close(_room_norm.room_norm(norm, room, features)[:20], expected)
    room._note_zeros(bare)
    with torch.no_grad():
        bare.add_(1)
    assert not room.has_zeros(bare)


def test_zeros_of_inference_mode_are_not_taken_for_granted() -> None:
    """Nothing tells that an inference tensor was edited."""
    rows = torch.cat([scene(20, "cpu").indices, _room.nowhere(5, 4, torch.device("cpu"))])
    room = _room.Room(rows, [EXTENT] * 3, BATCH, _room.Rooms())
    layer, norm = spnn.SubMConv3d(4, 6, 3, bias=False), nn.BatchNorm1d(6)
    with torch.inference_mode():
        x = SparseConvTensor(torch.randn(25, 4), rows, [EXTENT] * 3, BATCH, check=False)
        x._coordinates = room
        bare = layer(x).features
        assert not room.has_zeros(bare)
        bare.add_(1)
        expected = nn.functional.batch_norm(bare[:20], None, None, training=True)
        assert close(_room_norm.room_norm(norm, room, bare)[:20], expected)


def test_a_network_in_inference_mode(device: str) -> None:
    """Captured there or before, called there and later."""
    net = strided("floor").eval().to(device)
    with torch.no_grad():
        before = spnn.capture(net, scene(200, device))
    with torch.inference_mode():
        within = spnn.capture(net, scene(200, device))
        x = scene(150, device)
        expected = net(x)
        for ready in (before, within):
            assert torch.equal(ready(x).indices, expected.indices)
            assert close(ready(x).features, expected.features)
