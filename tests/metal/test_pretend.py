"""Everything of ours that runs on an Apple GPU, on one that is pretended: no operator of PyTorch
that is wrong there, no tensor on the wrong device.

`metal_emu/pretend.py` has the list. Networks have fewer than 65 channels and more rows, so that a
product over rows shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import metal_emu
import pytest
import torch
from metal_emu.pretend import RULES, WrongOnMps, pretend
from torch.nn.functional import cross_entropy

import sparse3d
import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry, pointops, selftest
from sparse3d.models.dgcnn import DGCNN
from sparse3d.models.minkunet import MinkUNet
from sparse3d.models.point_mae import PointMAE
from sparse3d.models.point_transformer import PointTransformerSeg
from sparse3d.models.pointnet2 import PointNet2Classifier, PointNet2Segmenter
from sparse3d.models.spunet import SpUNet
from sparse3d.models.spvcnn import SPVCNN
from sparse3d.ops import _again
from sparse3d.ops.norm import (
    batch_norm_relu_again,
    batch_norm_relu_grad,
    batch_norm_relu_train,
)
from sparse3d.pointops import boxes, pointcept
from sparse3d.pointops import flat as flat_ops

WIDTHS = (8, 8, 16, 16, 24, 16, 16, 8, 8)
Gpu = Callable[[Any], Any]


@pytest.fixture
def gpu() -> Any:
    session = metal_emu.Session(metal_emu.fronts()[0], False, metal_emu.Options())
    with pretend(session) as to, _registry.strict():
        yield to


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("_unique2", torch.unique),
        ("sort", lambda x: torch.argsort(x, stable=True)),
        ("cumsum", lambda x: x.cumsum(0)),
        ("bincount", torch.bincount),
        ("abs", lambda x: x.abs()),
        ("index_add", lambda x: x.float().index_add(0, x, x.float())),
        ("scatter_reduce", lambda x: x.scatter_reduce(0, x, x, "amax")),
        ("index_put", lambda x: x.float().index_put((x,), x.float(), accumulate=True)),
        ("index_select", lambda x: x.int().index_select(0, x)),
        ("mm", lambda x: x.float()[None] @ x.float()[:, None]),
    ],
)
def test_the_rules_are_held(gpu: Gpu, name: str, call: Callable[[torch.Tensor], Any]) -> None:
    assert name in RULES
    with pytest.raises(WrongOnMps, match=rf"aten\.{name} on mps"):
        call(gpu(torch.arange(70)))


def test_there_is_no_float64(gpu: Gpu) -> None:
    for made in (torch.Tensor.double, lambda x: x.new_zeros(2, dtype=torch.float64)):
        with pytest.raises(WrongOnMps, match="there is no float64"):
            made(gpu(torch.ones(3)))


def test_boxes_are_as_exact_as_on_the_cpu(gpu: Gpu) -> None:
    """Areas are float64's, rounded once; suppressed are the same boxes, at thresholds that some
    overlaps equal."""
    low = torch.randint(0, 9, (40, 2)) / 3
    upright = torch.cat([low, low + torch.randint(1, 9, (40, 2)) / 3], 1)
    across, down = upright[:, [0, 2, 2, 0]], upright[:, [1, 1, 3, 3]]
    corners, order = torch.stack([across, down], 2) + 1000, torch.randperm(40)
    near = torch.rand(40, 40) > 0.2
    for measure in (boxes.intersection_area, boxes.overlap_over_union):
        wanted = measure(corners, corners.flip(0))
        got = measure(gpu(corners), gpu(corners.flip(0)))
        assert wanted.dtype == torch.float64
        assert got.device.type == "mps"
        assert torch.equal(got.cpu(), wanted.float())
    for threshold in (0.0, 0.2, 0.5):
        kept = boxes.suppress_boxes(gpu(upright), gpu(order), threshold)
        assert kept.device.type == "mps"
        assert kept.tolist() == boxes.suppress_boxes(upright, order, threshold).tolist()
        for pairs in (None, near):
            given = None if pairs is None else gpu(pairs)
            kept = boxes.suppress_quadrilaterals(gpu(corners), gpu(order), threshold, given)
            wanted = boxes.suppress_quadrilaterals(corners, order, threshold, pairs)
            assert kept.tolist() == wanted.tolist()
            assert 1 < len(wanted) < 40


def test_tensors_on_two_devices_are_refused(gpu: Gpu) -> None:
    x = gpu(torch.ones(3))
    assert x.device.type == "mps"
    assert (x + 1).tolist() == [2.0] * 3
    with pytest.raises(WrongOnMps, match="two devices"):
        x + torch.ones(3)


def test_every_operator(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-test as a Mac owner runs it, watchdog's sentinel and all."""
    monkeypatch.setattr(selftest, "LAYERS", ((4, 32), (16, 16)))
    monkeypatch.setattr(selftest, "CHANNELS", ((4, 32, 1), (16, 24, 1)))
    monkeypatch.setattr(torch.mps, "synchronize", lambda: None)
    report = selftest.run("mps:0", sizes=(0, 33), rows=120, repeats=1)
    assert report.failures == []
    assert report.checks > 40


def sparse(gpu: Gpu) -> SparseConvTensor:
    """Two samples of voxels in pairs, mixed."""
    cells = torch.randperm(2 * 32**3)[:100].int()
    cells = torch.stack([cells % 2, cells // 2 % 32, cells // 64 % 32, cells // 2048 * 2], 1)
    cells = torch.cat([cells, cells + torch.tensor([0, 0, 0, 1])]).int()
    return SparseConvTensor(gpu(torch.randn(200, 4)), gpu(cells.contiguous()), [64, 64, 64], 2)


def clouds(count: int, points: int) -> tuple[torch.Tensor, torch.Tensor]:
    directions = torch.nn.functional.normalize(torch.randn(count, points, 3), dim=2)
    return directions, torch.arange(count) % 2


def minkunet(gpu: Gpu) -> torch.Tensor:
    x, net = sparse(gpu), gpu(MinkUNet(4, 5, WIDTHS, (1,) * 4, (1,) * 4))
    return cross_entropy(net(x), gpu(torch.arange(200) % 5))


def spvcnn(gpu: Gpu) -> torch.Tensor:
    return gpu(SPVCNN(4, 5, 0.25))(sparse(gpu)).pow(2).sum()


def spunet(gpu: Gpu) -> torch.Tensor:
    out = gpu(SpUNet(4, 5, 8, (8, 16, 16, 16, 16, 16, 8, 8), (1,) * 8))(sparse(gpu))
    return out.pow(2).sum()


def layers(gpu: Gpu) -> torch.Tensor:
    net = spnn.SparseSequential(
        spnn.SubMConv3d(4, 8, 3, indice_key="a"),
        spnn.SparseBatchNorm(8),
        torch.nn.ReLU(),
        spnn.SparseConv3d(8, 16, 3, 2, 1, indice_key="b"),
        spnn.SparseMaxPool3d(2, 2, indice_key="c"),
        spnn.SparseInverseConv3d(16, 8, 2, indice_key="c"),
        spnn.SparseInverseConv3d(8, 8, 3, indice_key="b"),
        spnn.SparseConvTranspose3d(8, 4, 2, 2),
        spnn.SparseAvgPool3d(2, 2),
    )
    made = gpu(net)(sparse(gpu))
    pooled = spnn.SparseGlobalAvgPool()(made)
    pooled = pooled if isinstance(pooled, torch.Tensor) else pooled.features
    return made.features.pow(2).sum() + pooled.sum() + made.dense().sum()


def tensors(gpu: Gpu) -> torch.Tensor:
    x = sparse(gpu)
    parts = [features.sum() for features, _ in sparse3d.tensor.decompose(x)]
    twice = SparseConvTensor(
        torch.cat([x.features, x.features]),
        torch.cat([x.indices, x.indices]),
        x.spatial_shape,
        x.batch_size,
        check=False,
    )
    merged = sparse3d.coalesce(twice, "mean")
    joined = sparse3d.add(merged, x)
    return torch.stack(parts).sum() + joined.features.sum()


def voxels(gpu: Gpu) -> torch.Tensor:
    points = gpu(torch.rand(200, 4)).requires_grad_()
    coords = gpu(torch.arange(800).view(200, 4) % 3)
    made = sparse3d.voxelize(points, coords.int(), "mean")
    first = sparse3d.voxelize(points, coords.int(), "first")
    back = sparse3d.devoxelize(made.features, made.inverse)
    return back.sum() + first.features.sum()


def classifier(net: torch.nn.Module, points: int = 48) -> Callable[[Gpu], torch.Tensor]:
    def run(gpu: Gpu) -> torch.Tensor:
        cloud, kind = clouds(2, points)
        return cross_entropy(gpu(net)(gpu(cloud)), gpu(kind))

    return run


def segmenter(gpu: Gpu) -> torch.Tensor:
    net, (cloud, _) = gpu(PointNet2Segmenter(2, channels=1, msg=False, points=48)), clouds(2, 48)
    out = net(gpu(cloud), gpu(cloud[..., 2:].transpose(1, 2).contiguous()))
    return cross_entropy(out, gpu((cloud[..., 2] > 0).long()))


def transformer(gpu: Gpu) -> torch.Tensor:
    net = gpu(PointTransformerSeg(3, 2, (1, 1, 1), (16, 32, 32), (1, 4, 4), (4, 8, 8)))
    flat = gpu(clouds(2, 90)[0].reshape(-1, 3))
    out = net(flat, flat, gpu(torch.tensor([90, 180], dtype=torch.int32)))
    return cross_entropy(out, (flat[:, 1] > 0).long())


def point_mae(gpu: Gpu) -> torch.Tensor:
    net = PointMAE(12, 8, width=16, depth=1, decoder_depth=1, heads=2)
    loss: torch.Tensor = gpu(net)(gpu(clouds(4, 96)[0]))
    return loss


def point_operators(gpu: Gpu) -> torch.Tensor:
    cloud = gpu(clouds(2, 70)[0])
    flat, batch = cloud.reshape(-1, 3), gpu(torch.arange(2).repeat_interleave(70))
    edges = flat_ops.knn_graph(flat, 4, batch)
    sums = pointops.scatter_mean(flat[edges[0]], edges[1], 0, 140)
    grid = pointops.voxel_grid(flat, 0.5, batch)
    chosen = pointops.furthest_point_sample(cloud, 9)
    rows = pointops.gather(cloud.transpose(1, 2).contiguous(), chosen)
    sampled = flat_ops.fps(flat, batch, 0.2)
    loss, _ = pointops.chamfer_distance(cloud, cloud.flip(1))
    ends = pointcept.batch2offset(batch)
    near = pointcept.knn_query(3, flat, ends)[0]
    turned = flat_ops.knn_graph(flat, 4, cosine=True, ptr=[0, 70, 140])
    halves = pointops.scatter_mean(flat[edges[0]].half(), edges[1], 0, 140)
    loss = loss + turned.sum() + halves.sum() + pointops.voxel_grid(flat.half(), 0.5, batch).sum()
    return sums.sum() + grid.sum() + rows.sum() + loss + near.sum() + sampled.sum()


def scattered(gpu: Gpu) -> torch.Tensor:
    """Reductions, runs, and what point transformers make of neighbourhoods."""
    src, index = gpu(torch.rand(300, 3)).requires_grad_(), gpu(torch.arange(300) // 7)
    bounds = gpu(torch.tensor([0, 90, 90, 300]))
    parts = [
        pointops.scatter_softmax(src, index, 0)[:, :1],
        pointops.scatter_log_softmax(src, index, 0),
        pointops.scatter_logsumexp(src, index, 0),
        pointops.scatter_std(src, index, 0),
        pointops.scatter_mul(src, index, 0),
        pointops.scatter_max(src, index, 0)[0],
        pointops.scatter_min(src, index, 0)[0],
        pointops.segments.segment_csr(src, bounds, "mean")[0],
        pointops.segments.gather_coo(src, index),
        pointops.segments.gather_csr(src[:3], bounds),
    ]
    near = gpu(torch.arange(900).view(300, 3) % 300)
    parts.append(pointops.attention.subtraction(src, src, near)[0])
    weight = pointops.attention.subtraction(src, src, near)[..., :1]
    parts.append(pointops.attention.aggregation(src, src[:, None].expand(-1, 3, -1), weight, near))
    heads, pairs = src.view(300, 1, 3), near.reshape(-1)
    steps = pointops.attention
    relation = steps.attention_relation_step(heads, heads, src[0], pairs, pairs.flip(0))
    parts.append(steps.attention_fusion_step(relation, heads, pairs, pairs.flip(0)))
    table, where = gpu(torch.rand(5, 1, 3, 3)).requires_grad_(), near.repeat(3, 1) % 5
    parts.append(steps.relative_bias(heads, heads, table, table, pairs, pairs.flip(0), where))
    ends = gpu(torch.arange(0, 901, 3))
    parts.append(
        steps.relative_fusion_step(
            relation, heads, table, steps.targets(ends, 900), pairs, where, compact=True
        )
    )
    return torch.cat([part.reshape(-1) for part in parts]).sum()


def neighbourhoods(gpu: Gpu) -> torch.Tensor:
    cloud = gpu(clouds(2, 70)[0]).requires_grad_()
    lengths = gpu(torch.tensor([70, 33]))
    found, index = pointops.padded.knn_points(cloud, cloud, lengths, lengths, K=3)
    near, hits = pointops.padded.ball_query(cloud, cloud, lengths, lengths, 4, 0.5)
    taken = pointops.padded.sample_farthest_points(cloud, lengths, 40)
    rows = pointops.padded.masked_gather(cloud, taken).sum()
    rows = rows + pointops.padded.masked_gather(cloud, hits).sum()
    rows = rows + pointops.padded.knn_gather(cloud, index, lengths).sum()
    offsets = pointops.group_offsets(cloud, cloud, hits.clamp_min(0)).pow(2).sum()
    distance, _ = pointops.three_nn(cloud, cloud[:, :2], pad=True)
    weights = pointops.inverse_distance_weights(distance)
    flat, ends = cloud.detach().reshape(-1, 3), gpu(torch.tensor([70, 140]))
    shell = pointops.shell.shell_query(4, 0.9, 0.1, flat, ends)[1]
    chance = pointops.shell.random_shell_query(4, 0.9, 0.1, flat, ends)[1]
    spread = pointcept.dilated_knn_query(4, 1, flat, ends, flat, ends)
    total = found.sum() + near.sum() + rows + offsets + weights.sum()
    return total + shell.sum() + chance.sum() + spread.sum()


CASES: dict[str, Callable[[Gpu], torch.Tensor]] = {
    "minkunet": minkunet,
    "spvcnn": spvcnn,
    "spunet": spunet,
    "layers": layers,
    "tensors": tensors,
    "voxels": voxels,
    "pointnet2": classifier(PointNet2Classifier(2, msg=True, points=48)),
    "pointnet2 segmenter": segmenter,
    "dgcnn": classifier(DGCNN(2, k=8), 64),
    "point transformer": transformer,
    "point mae": point_mae,
    "point operators": point_operators,
    "scattered": scattered,
    "neighbourhoods": neighbourhoods,
}


@pytest.mark.parametrize("name", CASES)
def test_a_forward_and_a_backward_pass(gpu: Gpu, name: str) -> None:
    loss = CASES[name](gpu)
    if loss.requires_grad:
        loss.backward()
    assert loss.device.type == "mps"
    assert torch.isfinite(loss.detach().cpu())


def test_norm_and_relu_run_as_one_and_are_made_again(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The convolution after them keeps no rows, whatever their size here: it makes them again."""
    made: list[str] = []
    for op in (batch_norm_relu_train, batch_norm_relu_again, batch_norm_relu_grad):
        kernel = op.kernels["metal"]

        def run(*args: Any, op: Any = op, kernel: Any = kernel) -> Any:
            made.append(op.name)
            return kernel.run(*args)

        monkeypatch.setitem(op.kernels, "metal", _registry.Kernel(run, kernel.when))
    monkeypatch.setattr(_again, "LEAST_BYTES", 0)
    block = spnn.SparseSequential(
        spnn.SubMConv3d(4, 8, 3, indice_key="a"),
        spnn.SparseBatchNorm(8),
        torch.nn.ReLU(),
        spnn.SubMConv3d(8, 8, 3, indice_key="a"),
    )
    gpu(block)(sparse(gpu)).features.square().sum().backward()
    assert made == ["batch_norm_relu_train", "batch_norm_relu_again", "batch_norm_relu_grad"]
