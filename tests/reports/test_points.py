"""Reports about points: rows 28, 29, 31, 32, 34, 35, 36, 37."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import point_oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerance import assert_close, assert_same

import sparse3d.compat.minkowski as ME
from sparse3d import devoxelize, group_points, quantize, voxelize
from sparse3d.compat import knn_cuda, pointops, pytorch3d, torch_cluster
from sparse3d.compat.pointnet2_ops import pointnet2_utils
from sparse3d.compat.spconv import utils as spconv_utils
from sparse3d.compat.torchsparse.utils.quantize import sparse_quantize
from sparse3d.data import to_grid
from sparse3d.nn.utils import PointToVoxel
from sparse3d.pointops import (
    SpatialIndex,
    ball_query,
    chamfer_distance,
    flat,
    furthest_point_sample,
    knn,
    three_nn,
)


def test_row_28_half_a_cell_at_the_end_counts(engine: str) -> None:
    """312.5 cells: the grid is rounded up as spconv 2.x has it, so that index 312 lies inside."""
    made = PointToVoxel([0.16] * 3, [-10.0] * 3 + [40.0] * 3, 3, 100, 5)
    points = torch.tensor([[39.99, 0, 0], [39.90, 0, 0], [-10.0, -10, -10], [40.0, 0, 0]])
    _, indices, counts, ids = made.generate_voxel_with_id(points)
    assert made.grid_size == [313, 313, 313]
    assert ids.tolist() == [0, 1, 2, 0]
    assert indices.tolist() == [[62, 62, 312], [62, 62, 311], [0, 0, 0]]
    assert counts.tolist() == [2, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_row_28_no_index_reaches_the_grid(engine: str, dtype: torch.dtype) -> None:
    @settings(max_examples=10 if engine == "metal" else 60, deadline=None, derandomize=True)
    @given(
        low=st.integers(-80, 10).map(lambda n: n / 2),
        length=st.floats(0.5, 80),
        size=st.floats(0.05, 1.0),
        axes=st.integers(1, 4),
    )
    def check(low: float, length: float, size: float, axes: int) -> None:
        high = low + length
        if round(length / size) < 1:
            return
        made = PointToVoxel([size] * axes, [low] * axes + [high] * axes, axes, 1000, 1)
        line = torch.tensor([low, high, high - 1e-3, high - size / 2, high - size, high + size])
        points = torch.cat([line, torch.linspace(low - size, high + size, 50)]).to(dtype)
        points = points[:, None].expand(-1, axes).contiguous()
        _, indices, _, ids = made.generate_voxel_with_id(points)
        for axis, extent in enumerate(made.grid_size):
            assert len(indices) == 0 or int(indices[:, axis].max()) < extent
            assert len(indices) == 0 or int(indices[:, axis].min()) >= 0
        wide = points[:, 0].double()
        assert bool((ids[wide < low - 0.6 * size] < 0).all())
        assert bool((ids[wide > high + 0.6 * size] < 0).all())

    check()


def test_row_28_stand_ins_round_as_their_versions(engine: str) -> None:
    """2.x rounds the grid up and keeps the point; numpy rounds 1.x's to even and drops it."""
    points = np.array([[39.99, 0, 0], [39.9, 0, 0], [-10, -10, -10]], np.float32)
    numbers = ([0.16] * 3, [-10.0] * 3 + [40.0] * 3)
    second = spconv_utils.Point2VoxelCPU3d(*numbers, 3, 100, 5)
    first = spconv_utils.VoxelGeneratorV2(*numbers, 5, 100)
    found = second.point_to_voxel(points)[1].numpy()
    also = first.generate(points)["coordinates"]
    assert (list(second.grid_size), first.grid_size.tolist()) == ([313] * 3, [312] * 3)
    assert found[:, 2].tolist() == [312, 311, 0]
    assert_same(found[1:], also)
    assert also.max() < 312


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_row_29_every_voxel_is_filled_with_its_own_mean(engine: str, axes: int) -> None:
    base = torch.tensor([0.1, 0.2, 1.1, 1.2, 1.6])
    points = torch.stack([base] * axes + [torch.tensor([1.0, 3, 10, 20, 60])], 1)
    made = PointToVoxel([1.0] * axes, [0.0] * axes + [4.0] * axes, axes + 1, 10, 5)
    voxels, _, counts = made(points[[2, 0, 3, 1, 4]], empty_mean=True)
    assert counts.tolist() == [3, 2]
    assert voxels[0, :, -1].tolist() == [10, 20, 60, 30, 30]
    assert voxels[1, :, -1].tolist() == [1, 3, 2, 2, 2]
    assert_close(voxels[1, 2:], points[:2].mean(0).expand(3, -1), torch.float32)
    plain = made(points, empty_mean=False)[0]
    assert not plain[0, 2:].any()
    again = made(points[[2, 0, 3, 1, 4]], empty_mean=True)[0]
    assert torch.equal(voxels, again)


def test_row_29_stand_ins_and_a_full_voxel(engine: str) -> None:
    points = np.array([[0.5, 0.5, 0.5, 2], [0.5, 0.5, 0.5, 4], [1.5, 0.5, 0.5, 5]], np.float32)
    numbers = ([1.0] * 3, [0.0] * 3 + [4.0] * 3)
    made = spconv_utils.Point2VoxelCPU3d(*numbers, 4, 10, 3).point_to_voxel_empty_mean(points)
    assert made[0].numpy()[:, :, 3].tolist() == [[2, 4, 3], [5, 5, 5]]
    old = spconv_utils.VoxelGenerator(*numbers, 3, 10).generate(points)
    assert old[0][:, :, 3].tolist() == [[2, 4, 3], [5, 5, 5]]
    full = PointToVoxel(*numbers, 4, 10, 1)(torch.from_numpy(points), empty_mean=True)
    assert full[0][:, :, 3].tolist() == [[2], [5]]


SIGNS = torch.tensor(list(itertools.product((1.0, -1.0), repeat=3)))


def groups(inverse: Any) -> list[int]:
    """Which points go together, whatever the voxels' numbers: first member of each group."""
    values = [int(v) for v in inverse]
    return [values.index(v) for v in values]


def _cells(points: torch.Tensor, size: float) -> torch.Tensor:
    rows = torch.nn.functional.pad(quantize(points, size), (1, 0))
    return voxelize(points, rows).inverse


QUANTISERS: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "native": _cells,
    "grid": lambda p, size: to_grid(p.numpy(), size).inverse,
    "grid, signed": lambda p, size: to_grid(p.numpy(), size, origin="zero").inverse,
    "torchsparse": lambda p, size: sparse_quantize(p.numpy(), size, return_inverse=True)[1],
    "minkowski": lambda p, size: ME.utils.sparse_quantize(
        p, return_index=True, return_inverse=True, quantization_size=size
    )[2],
}


@pytest.mark.parametrize("name", QUANTISERS)
def test_row_31_mirrored_points_do_not_meet(engine: str, name: str) -> None:
    points = SIGNS * torch.tensor([1.23, 4.56, 7.89])
    inverse = QUANTISERS[name](points, 0.05)
    assert len({int(v) for v in inverse}) == 8


@pytest.mark.parametrize("name", QUANTISERS)
def test_row_31_a_shift_by_whole_voxels_keeps_the_grouping(engine: str, name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    points = torch.randint(-100, 100, (300, 3), generator=generator) / 256
    wanted = groups(QUANTISERS[name](points, 0.0625))
    assert len(set(wanted)) < 300
    for shift in ((1, 0, 0), (-7, 5, -40), (1000, -1000, 16)):
        moved = points + torch.tensor(shift) * 0.0625
        assert groups(QUANTISERS[name](moved, 0.0625)) == wanted
    mirrored = 1 / 512 - points  # floor rule: its cells are those of an exact division
    cells = (mirrored.double() / 0.0625).floor() + 100
    exact = cells @ torch.tensor([1.0, 1000, 1e6], dtype=torch.float64)
    assert groups(QUANTISERS[name](mirrored, 0.0625)) == groups(exact)


@pytest.mark.parametrize("name", [n for n in QUANTISERS if n != "grid"])
def test_row_31_no_collision_between_far_points(engine: str, name: str) -> None:
    """Cells whose row-major number passes 2^64 are still told apart."""
    far = torch.tensor([[0, 0, 0], [2**22, 0, 0], [0, 2**22, 0], [0, 0, 2**22], [2**22] * 3])
    inverse = QUANTISERS[name](far.float(), 1.0)
    assert len({int(v) for v in inverse}) == 5


@pytest.mark.parametrize("name", QUANTISERS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e12])
def test_row_31_what_has_no_cell_is_refused(engine: str, name: str, value: float) -> None:
    points = torch.tensor([[0.0, 0, 0], [1.0, value, 0]])
    with pytest.raises(ValueError, match=r"finite|int32"):
        QUANTISERS[name](points, 0.05)


def test_row_31_floor_below_zero() -> None:
    assert quantize(torch.tensor([[-0.01], [0.01], [-0.05], [-0.051]]), 0.05).tolist() == [
        [-1], [0], [-1], [-2],
    ]  # fmt: skip


def _cube() -> torch.Tensor:
    return SIGNS.clone()


def _symmetric() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(256, 1, 3, generator=generator) * SIGNS).reshape(-1, 3)


CLOUDS = {
    "cube": _cube,
    "symmetric 2048": _symmetric,
    "coincident": lambda: torch.tensor([[1.0, 1, 1]]).repeat(40, 1),
    "pairs": lambda: torch.cat([_cube(), _cube()]),
}


@pytest.mark.parametrize("name", CLOUDS)
def test_row_32_each_point_once(engine: str, name: str) -> None:
    points = CLOUDS[name]()
    total = len(points)
    taken = furthest_point_sample(points[None], total)[0]
    assert sorted(taken.tolist()) == list(range(total))
    fewer = furthest_point_sample(points[None], total // 2)[0]
    assert torch.equal(fewer, taken[: total // 2])
    more = furthest_point_sample(points[None], total + 3)[0]
    assert more[:total].tolist() == taken.tolist()
    assert more[total:].tolist() == [0, 0, 0]  # documented padding
    rows = flat.fps(points, ratio=1.0, random_start=False)
    assert sorted(rows.tolist()) == list(range(total))


def test_row_32_stand_ins_cover_distinct_points(engine: str) -> None:
    """The peers keep taken points in the race: distinct points come once, K > N is padded."""
    points = _symmetric()
    _, indices = pytorch3d.ops.sample_farthest_points(points[None], K=2048)
    assert sorted(indices[0].tolist()) == list(range(2048))
    _, padded = pytorch3d.ops.sample_farthest_points(_cube()[None], K=10)
    assert sorted(padded[0].tolist()) == [-1, -1, *range(8)]
    rows = torch_cluster.fps(points, ratio=1.0, random_start=False)
    assert sorted(rows.tolist()) == list(range(2048))
    assert sorted(pointnet2_utils.furthest_point_sample(_cube()[None], 8)[0].tolist()) == [
        *range(8)
    ]
    offset = torch.tensor([8], dtype=torch.int32)
    assert sorted(pointops.furthestsampling(_cube(), offset, offset).tolist()) == [*range(8)]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("module", ["native", "pytorch3d"])
def test_row_34_an_empty_pair_adds_zero(engine: str, module: str, norm: int) -> None:
    chamfer = chamfer_distance if module == "native" else pytorch3d.loss.chamfer_distance
    x = torch.randn(2, 4, 3, requires_grad=True)
    y = torch.randn(2, 4, 3, requires_grad=True)
    lengths = torch.tensor([0, 3])
    loss, _ = chamfer(x, y, lengths, lengths, norm=norm, batch_reduction="sum")
    alone, _ = chamfer(x[1:, :3], y[1:, :3], norm=norm, batch_reduction="sum")
    assert torch.equal(loss, alone)
    loss.backward()
    for cloud in (x, y):
        assert cloud.grad is not None
        assert torch.isfinite(cloud.grad).all()
        assert not cloud.grad[0].any()
        assert not cloud.grad[1, 3].any()
    one_sided, _ = chamfer(x, y, torch.tensor([0, 3]), torch.tensor([4, 3]), norm=norm)
    assert bool(torch.isfinite(one_sided))
    nothing, _ = chamfer(x, y, torch.tensor([0, 0]), torch.tensor([0, 0]), norm=norm)
    assert float(nothing.detach()) == 0


@pytest.mark.parametrize("point", ["mean", "sum", "max", None])
def test_row_34_every_reduction_is_finite(engine: str, point: str | None) -> None:
    batch = None if point is None else "mean"
    x, y, lengths = torch.randn(2, 4, 3), torch.randn(2, 4, 3), torch.tensor([0, 3])
    for weights in (None, torch.zeros(2)) if point else (None,):
        loss, _ = chamfer_distance(
            x, y, lengths, lengths, weights=weights, point_reduction=point, batch_reduction=batch
        )
        for part in loss if isinstance(loss, tuple) else (loss,):
            assert torch.isfinite(part).all()
    for clouds in ((x[:, :0], y), (y, x[:, :0])):
        with pytest.raises(ValueError, match="must be of at least one point a cloud, got shape"):
            chamfer_distance(*clouds)


@pytest.mark.parametrize("bad", [5, -1])
def test_row_34_lengths_beyond_the_padding(engine: str, bad: int) -> None:
    x, y, lengths = torch.zeros(2, 4, 3), torch.zeros(2, 4, 3), torch.tensor([bad, 3])
    for call in (
        lambda: chamfer_distance(x, y, lengths),
        lambda: chamfer_distance(x, y, None, lengths),
        lambda: pytorch3d.loss.chamfer_distance(x, y, lengths),
        lambda: pytorch3d.ops.knn_points(x, y, lengths),
        lambda: pytorch3d.ops.ball_query(x, y, None, lengths),
        lambda: pytorch3d.ops.sample_farthest_points(x, lengths),
    ):
        with pytest.raises(ValueError, match=rf"lengths.* must be in \[0, 4\].*got {bad}"):
            call()


def _views(cloud: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same (B, N, 3) values under other strides."""
    wide = torch.full((cloud.shape[0] + 2, cloud.shape[1] * 2 + 3, 5), 7.0)
    wide[1:-1, 3::2, 1:4] = cloud
    return {
        "transposed": cloud.transpose(1, 2).contiguous().transpose(1, 2),
        "sliced": wide[1:-1, 3::2, 1:4],
        "batch moved": cloud.transpose(0, 1).contiguous().transpose(0, 1),
        "expanded": cloud[:1].expand(cloud.shape),
    }


POINT_CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "chamfer": lambda x, y: chamfer_distance(x, y)[0],
    "knn": lambda x, y: knn(x, y, 3),
    "ball query": lambda x, y: ball_query(x, y, 0.8, 4),
    "fps": lambda x, y: furthest_point_sample(x, 6),
    "three nn": three_nn,
    "flat knn": lambda x, y: flat.knn(x[0], y[0], 2),
    "quantize": lambda x, y: quantize(x[0], 0.25),
    "pytorch3d knn": lambda x, y: pytorch3d.ops.knn_points(x, y, K=2, return_nn=True),
    "pytorch3d chamfer": lambda x, y: pytorch3d.loss.chamfer_distance(x, y)[0],
    "knn_cuda": knn_cuda.KNN(2, transpose_mode=True),
    "pointnet2": lambda x, y: pointnet2_utils.ball_query(0.8, 3, x, y),
}


@pytest.mark.parametrize("call", POINT_CALLS)
def test_row_35_strides_do_not_matter(engine: str, call: str) -> None:
    x, y = torch.randn(2, 16, 3), torch.randn(2, 16, 3)
    for name, view in _views(x).items():
        plain, mirror = view.contiguous().clone(), _views(y)[name]
        assert not view.is_contiguous()
        found, wanted = (
            POINT_CALLS[call](view, mirror),
            POINT_CALLS[call](plain, mirror.contiguous()),
        )
        for left, right in zip(_listed(found), _listed(wanted), strict=True):
            assert torch.equal(left, right), name


def _listed(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [v for v in value if v is not None]


@pytest.mark.parametrize("call", ["chamfer", "ball query", "pytorch3d knn", "pytorch3d chamfer"])
def test_row_35_gradients_too(engine: str, call: str) -> None:
    x, y = torch.randn(2, 16, 3), torch.randn(2, 16, 3)
    for name in ("transposed", "sliced", "batch moved"):
        grads = []
        for form in (lambda v: v, lambda v: v.contiguous()):
            a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
            out = POINT_CALLS[call](form(_views(a)[name]), form(_views(b)[name]))
            first = _listed(out)[0]
            first.square().sum().backward()
            grads.append((a.grad, b.grad))
        assert torch.equal(grads[0][0], grads[1][0]), name
        assert torch.equal(grads[0][1], grads[1][1]), name


def test_row_35_sparse_layers_and_voxels_take_views(engine: str) -> None:
    import sparse3d.nn as spnn
    from sparse3d import SparseConvTensor

    features = torch.randn(4, 30)
    grid = torch.randperm(125)[:30]
    packed = torch.stack([torch.zeros_like(grid), grid // 25, grid // 5 % 5, grid % 5]).int()
    views = features.t(), packed.t()  # neither is contiguous
    conv, pool = spnn.SubMConv3d(4, 4, 3), spnn.SparseMaxPool3d(2, 2)
    results = []
    for f, i in (views, tuple(v.contiguous() for v in views)):
        x = SparseConvTensor(f, i, [5, 5, 5], 1)
        out = pool(conv(x))
        merged = voxelize(f, i // 2)
        back = devoxelize(merged.features.t().contiguous().t(), merged.inverse)
        results.append([out.features, out.indices, x.dense(), *merged, back])
    for left, right in zip(*results, strict=True):
        assert torch.equal(left, right)


def _check_knn(query: torch.Tensor, reference: torch.Tensor, k: int, indices: torch.Tensor) -> None:
    """Against every distance in float32, sorted by (distance, index)."""
    assert_same(indices, point_oracle.knn(query, reference, k))


def test_row_36_k_neighbours_equal_brute_force(engine: str) -> None:
    few = torch.rand(32, 3)
    far = torch.cat([torch.rand(100, 3), torch.randn(3, 3) * 1e3])
    lattice = torch.cartesian_prod(*[torch.arange(4.0)] * 3)  # ties everywhere
    for cloud, k in ((few, 8), (far, 4), (lattice, 7), (few, 32)):
        distance, index = knn(cloud[None], cloud[None], k)
        assert index.shape == (1, len(cloud), k)
        assert bool((distance[..., 1:] >= distance[..., :-1]).all())
        _check_knn(cloud, cloud, k, index[0])
        edges = flat.knn(cloud, cloud, k)
        assert_same(edges[0].bincount(), torch.full((len(cloud),), k))
        assert_same(edges[1].reshape(-1, k), index[0])
        same = torch_cluster.knn(cloud, cloud, k)
        assert_same(same, edges)
        assert_same(pytorch3d.ops.knn_points(cloud[None], cloud[None], K=k).idx, index)
        assert_same(knn_cuda.KNN(k, transpose_mode=True)(cloud[None], cloud[None])[1], index)
        assert_same(SpatialIndex(cloud).knn(cloud, k)[1], index[0])


def test_row_36_a_sample_smaller_than_k(engine: str) -> None:
    cloud = torch.rand(13, 3)
    batch = torch.tensor([0] * 10 + [1] * 3)
    with pytest.raises(ValueError, match=r"k must be in \[0, 3\], got 4; ref has too few"):
        knn(cloud[None, 10:], cloud[None, 10:], 4)
    edges = flat.knn(cloud, cloud, 4, batch, batch)
    assert edges[0].bincount().tolist() == [4] * 10 + [3] * 3  # all there are: stated by `flat`
    assert bool((batch[edges[0]] == batch[edges[1]]).all())
    padded = torch.zeros(2, 10, 3)
    padded[0], padded[1, :3] = cloud[:10], cloud[10:]
    lengths = torch.tensor([10, 3])
    made = pytorch3d.ops.knn_points(padded, padded, lengths, lengths, K=4)
    assert made.idx.shape == (2, 10, 4)
    assert int(made.idx[1].max()) < 3
    assert made.dists[1, :3, 3].tolist() == [0, 0, 0]
    offset = torch.tensor([10, 13], dtype=torch.int32)
    index, _ = pointops.knn_query(4, cloud, offset)
    assert index.shape == (13, 4)
    assert index[10:, 3].tolist() == [-1] * 3


def test_row_37_no_neighbour_is_padding_not_n(engine: str) -> None:
    points = torch.rand(1, 20, 3)
    query = torch.tensor([[[100.0, 0, 0]]])
    distance, index = ball_query(query, points, 0.2, 4)
    assert index.tolist() == [[[-1] * 4]]
    assert distance.tolist() == [[[0.0] * 4]]
    made = pytorch3d.ops.ball_query(query, points, K=4, radius=0.2)
    assert made.idx.tolist() == [[[-1] * 4]]
    assert made.knn is not None
    assert not made.knn.any()
    assert pointnet2_utils.ball_query(0.2, 4, points, query).tolist() == [[[0] * 4]]
    assert flat.radius(points[0], query[0], 0.2).shape == (2, 0)
    assert torch_cluster.radius(points[0], query[0], 0.2).shape == (2, 0)
    with pytest.raises(ValueError, match="ref must be of at least one point a cloud, got shape"):
        ball_query(query, torch.zeros(1, 0, 3), 0.2, 4)
    found = SpatialIndex(points[0]).ball_query(query[0], 0.2, 4)[1]
    assert found.tolist() == [[-1] * 4]


def test_row_37_which_neighbours_are_kept(engine: str) -> None:
    """Lowest index by default, as documented; nearest first on request."""
    points = torch.tensor([[[0.6 - 0.1 * i, 0, 0] for i in range(6)] + [[5.0, 0, 0]]])
    query = torch.zeros(1, 1, 3)
    assert ball_query(query, points, 1.0, 2)[1].tolist() == [[[0, 1]]]
    distance, index = ball_query(query, points, 1.0, 2, nearest=True)
    assert index.tolist() == [[[5, 4]]]
    assert_close(distance[0, 0], torch.tensor([0.01, 0.04]), torch.float32)
    _, all_six = ball_query(query, points, 1.0, 9, nearest=True)
    assert all_six.tolist() == [[[5, 4, 3, 2, 1, 0, -1, -1, -1]]]


def test_row_37_nearest_first_equals_brute_force_with_gradients(engine: str) -> None:
    query, points = torch.rand(2, 9, 3), torch.rand(2, 30, 3)
    a, b = query.clone().requires_grad_(), points.clone().requires_grad_()
    distance, index = ball_query(a, b, 0.4, 5, nearest=True)
    exact = torch.cdist(query.double(), points.double()).square()
    for cloud, row in itertools.product(range(2), range(9)):
        near = exact[cloud, row].sort()
        wanted = [int(i) for d, i in zip(near.values, near.indices, strict=True) if d < 0.16][:5]
        assert index[cloud, row].tolist() == wanted + [-1] * (5 - len(wanted))
    assert bool((distance[index < 0] == 0).all())
    distance.sum().backward()
    assert a.grad is not None
    assert torch.isfinite(a.grad).all()
    c = query.clone().requires_grad_()
    rows = index.clamp(min=0).flatten(1)[..., None].expand(-1, -1, 3)
    near = points.gather(1, rows).view(2, 9, 5, 3)
    apart = (c[:, :, None] - near).square().sum(-1)
    torch.where(index >= 0, apart, 0).sum().backward()
    assert_close(a.grad, c.grad, torch.float32)


@pytest.mark.parametrize("count", [1, 2, 31, 257])
def test_row_37_indices_are_below_n_at_every_scale(engine: str, count: int) -> None:
    points, query = torch.rand(2, count, 3), torch.rand(2, 17, 3) * 1.5
    for nearest in (False, True):
        index = ball_query(query, points, 0.3, 8, nearest=nearest)[1]
        assert int(index.min()) >= -1
        assert int(index.max()) < count
    assert int(pointnet2_utils.ball_query(0.3, 8, points, query).max()) < count


def test_row_28_group_points_takes_no_more_than_asked(engine: str) -> None:
    points = torch.rand(50, 3)
    made = group_points(points, [0.5] * 3, [0.0] * 3 + [1.0] * 3, 3, 2)
    assert len(made.points) == len(made.indices) == len(made.counts) == 3
    assert int(made.counts.max()) <= 2
    assert int(made.voxel_ids.max()) == 2
