"""Point networks: shapes, a training step each, invariances, a real object cloud."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from sparse3d.models.dgcnn import DGCNN, DGCNNSegmenter
from sparse3d.models.point_mae import Grouping, PointMAE
from sparse3d.models.point_transformer import PointTransformerSeg
from sparse3d.models.pointnet2 import PointNet2Classifier, PointNet2Segmenter


def read_ply(path):
    """Positions of an ASCII .ply, centred, in the unit ball."""
    lines = path.read_text().splitlines()
    count = next(int(line.split()[2]) for line in lines if line.startswith("element vertex"))
    start = lines.index("end_header") + 1
    rows = np.array([line.split()[:3] for line in lines[start : start + count]], np.float32)
    rows -= rows.mean(0)
    return torch.from_numpy(rows / np.linalg.norm(rows, axis=1).max())


def shapes(clouds, points):
    """Spheres and cubes in turn, with their class."""
    direction = torch.nn.functional.normalize(torch.randn(clouds, points, 3), dim=2)
    kind = torch.arange(clouds) % 2
    cube = direction / direction.abs().amax(2, keepdim=True) * 0.6
    return torch.where(kind[:, None, None] == 1, cube, direction * 0.8), kind


def train(net, loss_of, steps, rate=1e-2):
    """First and last loss of a few steps; every parameter must receive a gradient."""
    optimizer = torch.optim.Adam(net.parameters(), rate)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        missing = [name for name, p in net.named_parameters() if p.grad is None]
        assert not missing
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses[0], min(losses[-3:])


@pytest.mark.parametrize("msg", [False, True])
def test_pointnet2_learns_to_classify(msg):
    net = PointNet2Classifier(2, msg=msg, points=48)
    clouds, kind = shapes(4, 48)
    first, last = train(net, lambda: cross_entropy(net(clouds), kind), 5)
    assert last < first


@pytest.mark.parametrize("msg", [False, True])
def test_pointnet2_learns_to_segment(msg):
    net = PointNet2Segmenter(2, channels=1, msg=msg, points=48)
    clouds, _ = shapes(2, 48)
    target = (clouds[..., 2] > 0).long()
    features = clouds[..., 2:].transpose(1, 2).contiguous()
    first, last = train(net, lambda: cross_entropy(net(clouds, features), target), 5)
    assert last < 0.8 * first


def test_dgcnn_learns_and_ignores_the_order_of_points():
    net = DGCNN(2, k=8)
    clouds, kind = shapes(4, 64)
    first, last = train(net, lambda: cross_entropy(net(clouds), kind), 8, 1e-3)
    assert last < first
    net.eval()
    with torch.no_grad():
        shuffled = clouds[:, torch.randperm(64)]
        assert torch.allclose(net(clouds), net(shuffled), atol=1e-4)


def test_dgcnn_learns_to_segment():
    net = DGCNNSegmenter(2, k=8)
    clouds, _ = shapes(2, 48)
    target = (clouds[..., 0] > 0).long()
    first, last = train(net, lambda: cross_entropy(net(clouds), target), 10, 1e-3)
    assert last < 0.8 * first


def test_point_mae_restores_masked_patches():
    net = PointMAE(12, 8, width=24, depth=2, decoder_depth=1, heads=2)
    clouds, _ = shapes(4, 96)
    first, last = train(net, lambda: net(clouds), 15, 3e-3)
    assert last < 0.8 * first
    assert net.encode(clouds).shape == (4, 12, 24)


def test_grouping_is_relative_and_nearest():
    clouds, _ = shapes(2, 80)
    patches, centres = Grouping(10, 6)(clouds)
    assert (patches[:, :, 0] == 0).all()  # the nearest point of a centre is the centre
    distance = patches.norm(dim=3)
    assert (distance[:, :, 1:] >= distance[:, :, :-1]).all()
    assert torch.equal(Grouping(10, 6)(clouds + 2)[0].round(decimals=4), patches.round(decimals=4))
    assert torch.equal(centres[0, 0], clouds[0, 0])


def test_point_transformer_learns_to_segment():
    net = PointTransformerSeg(3, 2, (1, 1, 1), (16, 32, 32), (1, 4, 4), (4, 8, 8))
    clouds, _ = shapes(2, 90)
    flat = clouds.reshape(-1, 3)
    offset = torch.tensor([90, 180], dtype=torch.int32)
    target = (flat[:, 1] > 0).long()
    first, last = train(net, lambda: cross_entropy(net(flat, flat, offset), target), 10, 3e-3)
    assert last < 0.7 * first


def test_point_transformer_keeps_clouds_apart():
    net = PointTransformerSeg(3, 4, (1, 1), (8, 16), (1, 4), (4, 4)).eval()
    cloud = torch.rand(50, 3)
    other = torch.rand(30, 3)
    both, offset = torch.cat([cloud, other]), torch.tensor([50, 80], dtype=torch.int32)
    with torch.no_grad():
        alone = net(cloud, cloud, torch.tensor([50], dtype=torch.int32))
        assert torch.allclose(net(both, both, offset)[:50], alone, atol=1e-5)


def test_point_transformer_has_pointcepts_names():
    names = set(PointTransformerSeg(blocks=(1, 1, 1, 1, 1)).state_dict())
    for name in (
        "enc1.0.linear.weight",
        "enc5.1.transformer.linear_q.weight",
        "enc2.1.transformer.linear_p.1.running_mean",
        "enc3.1.transformer.linear_w.5.bias",
        "dec5.0.linear1.0.weight",
        "dec1.1.bn3.weight",
        "cls.3.bias",
    ):
        assert name in names


@pytest.fixture(scope="module")
def bunny(shared):
    """Two parts of a scanned object, (2, 256, 3)."""
    rows = read_ply(shared / "data" / "object" / "bunny_res3_ascii.ply")
    return rows[: 2 * 256].view(2, 256, 3).contiguous()


def pointnet2_classes(cloud, half, msg):
    net = PointNet2Classifier(2, msg=msg, points=256)
    return net, lambda: cross_entropy(net(cloud), torch.arange(2))


def pointnet2_parts(cloud, half, msg):
    net = PointNet2Segmenter(2, msg=msg, points=256)
    return net, lambda: cross_entropy(net(cloud), half)


def dgcnn_classes(cloud, half):
    net = DGCNN(2, k=8)
    return net, lambda: cross_entropy(net(cloud), torch.arange(2))


def dgcnn_parts(cloud, half):
    net = DGCNNSegmenter(2, k=8)
    return net, lambda: cross_entropy(net(cloud), half)


def masked_patches(cloud, half):
    net = PointMAE(16, 16, width=24, depth=1, decoder_depth=1, heads=2)
    return net, lambda: net(cloud)


def transformer_parts(cloud, half):
    net = PointTransformerSeg(3, 2, (1, 1, 1), (16, 32, 32), (1, 4, 4), (8, 8, 8))
    flat, offset = cloud.reshape(-1, 3), torch.tensor([256, 512], dtype=torch.int32)
    return net, lambda: cross_entropy(net(flat, flat, offset), half.reshape(-1))


@pytest.mark.data
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(pointnet2_classes, msg=False), id="PointNet2 SSG classes"),
        pytest.param(partial(pointnet2_classes, msg=True), id="PointNet2 MSG classes"),
        pytest.param(partial(pointnet2_parts, msg=False), id="PointNet2 SSG parts"),
        pytest.param(partial(pointnet2_parts, msg=True), id="PointNet2 MSG parts"),
        pytest.param(dgcnn_classes, id="DGCNN classes"),
        pytest.param(dgcnn_parts, id="DGCNN parts"),
        pytest.param(masked_patches, id="Point-MAE"),
        pytest.param(transformer_parts, id="Point Transformer parts"),
    ],
)
def test_every_network_trains_on_a_real_object(bunny, make):
    half = (bunny[..., 1] > bunny[..., 1].median()).long()
    net, loss_of = make(bunny, half)
    first, last = train(net, loss_of, 4, 3e-3)
    assert np.isfinite(first)
    assert last < first


@pytest.mark.data
def test_patches_of_a_real_object(bunny):
    """Every patch holds the nearest points of a centre that is a point of its cloud."""
    patches, centres = Grouping(16, 8)(bunny)
    assert patches.shape == (2, 16, 8, 3)
    apart = torch.cdist(centres.double(), bunny.double())
    assert (apart.amin(2) == 0).all()
    nearest = apart.sort(dim=2).values[:, :, :8]
    assert torch.allclose(patches.double().norm(dim=3), nearest, atol=1e-6)
