"""Point stand-ins: the peers' rules by hand, their conventions of padding, dtype and order."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pickle
import sys
from collections.abc import Iterator

import numpy as np
import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d import compat

NAMES = (
    "pointnet2_ops", "knn_cuda", "torch_cluster", "torch_scatter", "pytorch3d", "pointops",
    "pointops2", "mps_pointops",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    made = compat.install(*NAMES)
    if set(made) != set(NAMES):
        pytest.skip(f"real packages are installed: {sorted(set(NAMES) - set(made))}")
    yield
    compat.uninstall(*NAMES)


def test_imports_specs_versions_and_pickles() -> None:
    import pointops
    import pytorch3d.ops.knn
    import torch_cluster
    import torch_scatter.composite.logsumexp
    import torch_scatter.composite.softmax
    import torch_scatter.composite.std
    from knn_cuda import KNN
    from pointnet2_ops import pointnet2_modules, pointnet2_utils
    from pytorch3d.loss.chamfer import chamfer_distance
    from pytorch3d.ops import ball_query, knn_points

    for name in (*NAMES, "pytorch3d.ops", "pytorch3d.ops.knn", "torch_cluster.fps"):
        assert importlib.util.find_spec(name) is not None
    assert importlib.util.find_spec("pytorch3d.renderer") is None
    for name in NAMES:
        major = sys.modules[name].__version__.split(".")[0]
        assert int(major) == int(importlib.metadata.version(name).split(".")[0])
    assert callable(torch_cluster.fps)  # not the submodule of that name
    assert pytorch3d.ops.knn.knn_points is knn_points
    assert torch_scatter.composite.std.scatter_std is torch_scatter.scatter_std
    assert torch_scatter.composite.softmax.scatter_softmax is torch_scatter.scatter_softmax
    for thing in (
        chamfer_distance,
        ball_query,
        pointops.knn_query,
        torch_scatter.composite.scatter_softmax,
        KNN(3),
        pointnet2_modules.PointnetFPModule([4, 8]),
        pointnet2_utils.QueryAndGroup(0.5, 4),
        knn_points(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3)),
    ):
        assert pickle.loads(pickle.dumps(thing)) is not None


def test_real_packages_are_left_alone(tmp_path, monkeypatch) -> None:
    compat.uninstall(*NAMES)
    (tmp_path / "knn_cuda.py").write_text("real = True\n")
    (tmp_path / "pointops").mkdir()  # a bare folder is no package
    monkeypatch.syspath_prepend(str(tmp_path))
    assert compat.install("knn_cuda", "pointops") == ["pointops"]
    import knn_cuda

    assert knn_cuda.real
    assert compat.install("knn_cuda", force=True) == ["knn_cuda"]
    import knn_cuda

    assert not hasattr(knn_cuda, "real")


def test_mps_pointops() -> None:
    import mps_pointops
    from mps_pointops import compat as switch
    from mps_pointops import nearest, pytorch3d, voxel

    points = make_cloud("uniform", 60)
    assert mps_pointops.knn is mps_pointops.ops.knn
    assert nearest.nearest(points, points).tolist() == list(range(60))
    found = pytorch3d.ball_query(points[None], points[None], K=1, radius=0.1)
    assert isinstance(found, pytorch3d.KNN)
    assert found.idx[0, :, 0].tolist() == list(range(60))
    assert isinstance(voxel.voxelize(points, 1.0), voxel.Voxelization)
    assert not isinstance(nearest, type(nearest.nearest))  # the modules keep their names

    compat.uninstall("pointnet2_ops", "knn_cuda", "torch_cluster", "pointops")
    assert switch.install() == ["pointnet2_ops", "knn_cuda", "torch_cluster"]
    assert "pointops" not in sys.modules
    assert switch.install(pointcept=True)[-1] == "pointops"
    import pointops
    from knn_cuda import KNN

    assert switch.KNN is KNN
    assert callable(pointops.knn_query)


def test_mps_pointops_registers_for_apple_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    from mps_pointops import pyg

    asked = []

    def register(*keys: str) -> list[str]:
        asked.append(keys)
        return ["fps:MPS", "knn:MPS"]

    monkeypatch.setattr(pyg, "register", register)
    assert pyg.register_mps() == ["fps", "knn"]
    assert asked == [("MPS",)]


@pytest.mark.parametrize("name", ["ops.cubify", "ops.wmean", "loss.mesh_edge_loss"])
def test_the_rest_of_pytorch3d_refuses(name: str) -> None:
    import pytorch3d

    module, _, function = name.partition(".")
    with pytest.raises(NotImplementedError, match=f"pytorch3d.{name}: sparse3d has pytorch3d's"):
        getattr(getattr(pytorch3d, module), function)(torch.zeros(1), size=3)


class TestPointnet2Ops:
    def test_sampling_rule(self, shape: str) -> None:
        from pointnet2_ops.pointnet2_utils import FurthestPointSampling, furthest_point_sample

        cloud = make_cloud(shape, 300)
        cloud = torch.cat([cloud, cloud[:40] * 0 + 0.01])  # never taken: too near the origin
        taken = furthest_point_sample(cloud[None], 70)
        assert taken.dtype == torch.int32
        near = (cloud.double() ** 2).sum(1).float() <= 1e-3
        kept = torch.cat([torch.tensor([0]), (~near).nonzero()[:, 0]])
        assert set(taken[0].tolist()) <= set(kept.tolist())
        far = cloud + 1000.0
        wanted = oracle.fps(far, 50, stay=True, slots=256)
        assert FurthestPointSampling.apply(far[None], 50)[0].tolist() == wanted

    def test_ties_of_a_large_cloud_are_those_of_512_threads(self) -> None:
        from pointnet2_ops.pointnet2_utils import furthest_point_sample

        cloud = oracle.tied_cloud(512)
        taken = furthest_point_sample(cloud[None], 20)[0].tolist()
        assert taken == oracle.fps(cloud, 20, stay=True, slots=512)
        for other in (256, 1024):
            assert taken != oracle.fps(cloud, 20, stay=True, slots=other)

    def test_ball_query_pads_with_the_first_hit(self) -> None:
        from pointnet2_ops.pointnet2_utils import ball_query

        xyz = torch.tensor([[[9.0, 0, 0], [0.5, 0, 0], [0.1, 0, 0]]])
        centres = torch.tensor([[[0.0, 0, 0], [50, 0, 0]]])
        index = ball_query(1.0, 4, xyz, centres)
        assert index.dtype == torch.int32
        assert index.tolist() == [[[1, 2, 1, 1], [0, 0, 0, 0]]]

    def test_three_nn_with_too_few_points(self) -> None:
        from pointnet2_ops.pointnet2_utils import three_nn

        distance, index = three_nn(torch.zeros(1, 1, 3), torch.ones(1, 2, 3))
        assert index.tolist() == [[[0, 1, 0]]]
        assert distance[0, 0, 2] == float("inf")

    def test_groups_and_modules(self) -> None:
        from pointnet2_ops.pointnet2_modules import (
            PointnetFPModule,
            PointnetSAModule,
            PointnetSAModuleMSG,
        )
        from pointnet2_ops.pointnet2_utils import GroupAll, QueryAndGroup, gather_operation

        xyz, features = torch.rand(2, 64, 3), torch.rand(2, 5, 64, requires_grad=True)
        groups = QueryAndGroup(0.4, 8)(xyz, xyz[:, :10].contiguous(), features)
        assert groups.shape == (2, 8, 10, 8)
        assert (groups[:, :3] ** 2).sum(1).max() < 0.16
        assert GroupAll()(xyz, None, features).shape == (2, 8, 1, 64)
        index = torch.randint(0, 64, (2, 7), dtype=torch.int32)
        assert torch.equal(
            gather_operation(features, index),
            features.gather(2, index.long()[:, None].expand(2, 5, 7)),
        )
        single = PointnetSAModule([5, 16], npoint=16, radius=0.3, nsample=8)
        multi = PointnetSAModuleMSG(16, [0.2, 0.4], [4, 8], [[5, 8], [5, 12]])
        centres, coarse = single(xyz, features)
        assert coarse.shape == (2, 16, 16)
        assert multi(xyz, features)[1].shape == (2, 20, 16)
        assert PointnetSAModule([5, 9])(xyz, features)[1].shape == (2, 9, 1)
        out = PointnetFPModule([21, 6])(xyz, centres, features, coarse)
        out.sum().backward()
        assert out.shape == (2, 6, 64)
        assert features.grad is not None
        names = list(single.state_dict())
        assert names[:2] == ["mlps.0.0.weight", "mlps.0.1.weight"]
        with pytest.raises(ValueError, match="radius and nsample must be given with npoint"):
            PointnetSAModule([5, 9], npoint=16)


class TestKnnCuda:
    @pytest.mark.parametrize("transpose_mode", [True, False])
    def test_knn(self, transpose_mode: bool) -> None:
        from knn_cuda import KNN, knn

        ref, query = make_cloud("uniform", 90), make_cloud("uniform", 20, 2)
        wanted = oracle.knn(query, ref, 5)
        args = (ref[None], query[None])
        if not transpose_mode:
            args = (ref.t()[None], query.t()[None])
        distance, index = KNN(5, transpose_mode)(*args)
        if not transpose_mode:
            distance, index = distance.transpose(1, 2), index.transpose(1, 2)
        assert np.array_equal(index[0].numpy(), wanted)
        assert index.dtype == torch.int64
        assert np.array_equal(knn(ref.t(), query.t(), 5)[1].t().numpy(), wanted)
        kept = np.take_along_axis(oracle.distances32(query, ref), wanted, 1)
        assert np.array_equal(distance[0].numpy(), np.sqrt(kept))


class TestTorchCluster:
    def test_fps_keeps_the_peers_rule(self) -> None:
        import torch_cluster

        cloud = torch.zeros(6, 3)
        assert torch_cluster.fps(cloud, ratio=0.5, random_start=False).tolist() == [0, 0, 0]
        ptr, half = torch.tensor([0, 6]), torch.tensor(0.5)
        assert torch.ops.torch_cluster.fps(cloud, ptr, half, False).tolist() == [0, 0, 0]
        cloud = make_cloud("lattice", 120)
        wanted = oracle.fps(cloud, 60, stay=True)
        assert torch_cluster.fps(cloud, random_start=False).tolist() == wanted
        bounds = [0, 50, 120]
        taken = torch_cluster.fps(cloud, ratio=0.1, random_start=False, ptr=bounds)
        assert len(taken) == 5 + 7

    def test_operators(self) -> None:
        import torch_cluster

        x = make_cloud("uniform", 40)
        ptr = torch.tensor([0, 25, 40])
        batch = torch.tensor([0] * 25 + [1] * 15)
        ops = torch.ops.torch_cluster
        assert torch.equal(
            ops.knn(x, x, ptr, ptr, 3, False, 1), torch_cluster.knn(x, x, 3, batch, batch)
        )
        assert torch.equal(
            ops.radius(x, x, ptr, ptr, 1.0, 5, 1), torch_cluster.radius(x, x, 1.0, batch, batch, 5)
        )
        assert torch.equal(ops.nearest(x, x, ptr, ptr), torch.arange(40))
        half = torch.tensor(0.5)
        assert torch.equal(
            ops.fps(x, ptr, half, False), torch_cluster.fps(x, batch, random_start=False)
        )
        assert ops.cuda_version() == -1
        assert ops.grid(x, torch.ones(3), None, None).shape == (40,)

    def test_sampler(self) -> None:
        import torch_cluster

        rowptr = torch.tensor([0, 5, 5, 9])
        picked = torch_cluster.neighbor_sampler(torch.tensor([0, 1, 2]), rowptr, 3)
        assert len(picked) == 6
        assert len(set(picked.tolist())) == 6
        assert len(torch_cluster.neighbor_sampler(torch.tensor([0]), rowptr, 0.5)) == 3


class TestTorchScatter:
    def test_conventions(self) -> None:
        from torch_scatter import scatter, scatter_add, scatter_max, scatter_mean, scatter_mul

        src = torch.tensor([[2.0, 0, 1, 4, 3], [0, 2, 1, 3, 4]])
        index = torch.tensor([[4, 5, 4, 2, 3], [0, 0, 2, 2, 1]])
        out, arg = scatter_max(src, index, dim=-1)
        assert out.tolist() == [[0, 0, 4, 3, 2, 0], [2, 4, 3, 0, 0, 0]]
        assert arg.tolist() == [[5, 5, 3, 4, 0, 1], [1, 4, 3, 5, 5, 5]]
        assert scatter(src, index, reduce="sum").tolist()[0] == [0, 0, 4, 3, 3, 0]
        assert scatter_mean(src, index).tolist()[0] == [0, 0, 4, 3, 1.5, 0]
        assert scatter_mul(src, index).tolist()[0] == [1, 1, 4, 3, 2, 0]
        into = torch.ones(2, 6)
        assert scatter_add(src, index, out=into) is into
        assert into[0].tolist() == [1, 1, 5, 4, 4, 1]
        with pytest.raises(ValueError, match="reduce must be"):
            scatter(src, index, reduce="median")

    def test_half_means_are_rounded_once(self) -> None:
        from torch_scatter import scatter, segment_csr

        many = torch.full((3000,), 30.0, dtype=torch.float16)
        index = torch.zeros(3000, dtype=torch.int64)
        assert scatter(many, index, reduce="mean").tolist() == [30.0]
        assert segment_csr(many, torch.tensor([0, 3000]), reduce="mean").tolist() == [30.0]

    def test_segments(self) -> None:
        from torch_scatter import (
            gather_coo,
            gather_csr,
            scatter_mean,
            segment_coo,
            segment_csr,
            segment_max_csr,
        )

        src = torch.rand(10, 6, 4)
        indptr = torch.tensor([0, 2, 5, 5, 6])[None]
        out = segment_csr(src, indptr, reduce="sum")
        assert out.shape == (10, 4, 4)
        assert torch.allclose(out[:, 1], src[:, 2:5].sum(1))
        assert torch.equal(out[:, 2], torch.zeros(10, 4))
        value, arg = segment_max_csr(src, indptr)
        assert torch.equal(value[:, 0], src[:, :2].amax(1))
        assert (arg[:, 2] == 6).all()
        assert torch.equal(gather_csr(out, indptr)[:, 3], out[:, 1])
        partial = segment_csr(torch.arange(6.0), torch.tensor([2, 4, 5]))
        assert partial.tolist() == [5.0, 4.0]
        whole, pairs = torch.tensor([-4, 1, 3, 4]), torch.tensor([0, 0, 1, 1])
        assert scatter_mean(whole, pairs).tolist() == [-2, 3]  # floored
        assert segment_coo(whole, pairs, reduce="mean").tolist() == [-1, 3]  # cut
        assert segment_csr(whole, torch.tensor([0, 2, 4]), reduce="mean").tolist() == [-1, 3]
        index = torch.tensor([0, 0, 1, 1, 1, 3])
        assert torch.allclose(segment_coo(src, index[None], reduce="sum"), out)
        assert torch.equal(gather_coo(out, index[None])[:, 5], out[:, 3])

    def test_composites(self) -> None:
        from torch_scatter import (
            scatter_log_softmax,
            scatter_logsumexp,
            scatter_softmax,
            scatter_std,
        )

        src, index = torch.randn(9, dtype=torch.float64), torch.tensor([0, 1, 0, 2, 1, 1, 0, 2, 1])
        for segment in range(3):
            mine = index == segment
            assert torch.allclose(scatter_softmax(src, index)[mine], src[mine].softmax(0))
            assert torch.allclose(scatter_log_softmax(src, index)[mine], src[mine].log_softmax(0))
            assert torch.allclose(scatter_logsumexp(src, index)[segment], src[mine].logsumexp(0))
            deviation = scatter_std(src, index)[segment]
            assert torch.allclose(deviation, src[mine].std(), rtol=1e-4)

    def test_composites_of_nothing_and_into_a_tensor(self) -> None:
        from torch_scatter import scatter_logsumexp, scatter_std

        src = torch.tensor([1.0, 2.0, float("-inf"), 4.0])
        index = torch.tensor([0, 0, 2, 3])
        wanted = torch.tensor([1.0, 2.0]).logsumexp(0)
        found = scatter_logsumexp(src, index)
        assert torch.allclose(found, torch.tensor([wanted, 0.0, 0.0, 4.0]))
        into = torch.tensor([0.0, 7.0, 9.0, 0.0])
        assert scatter_logsumexp(src, index, out=into) is into
        more = torch.tensor([0.0, 1.0, 2.0]).logsumexp(0), torch.tensor([0.0, 4.0]).logsumexp(0)
        # Segments without anything keep what was there.
        assert torch.allclose(into, torch.tensor([more[0], 7.0, 9.0, more[1]]))
        src, into = torch.tensor([1.0, 3.0, 8.0]), torch.full((2,), 2.0)
        found = scatter_std(src, torch.tensor([0, 0, 1]), out=into)
        assert into.tolist() == [4.0, 2.0]
        assert torch.allclose(found, torch.tensor([2.0, 2**0.5]))


class TestPytorch3d:
    def test_knn_pads_with_zero(self) -> None:
        from pytorch3d.ops import knn_gather, knn_points

        p1, p2 = torch.randn(2, 6, 3), torch.randn(2, 8, 3)
        lengths = torch.tensor([8, 2])
        found = knn_points(p1, p2, lengths2=lengths, K=3, return_nn=True)
        assert found.idx[1, :, 2].tolist() == [0] * 6
        assert found.dists[1, :, 2].tolist() == [0.0] * 6
        assert np.array_equal(found.idx[0].numpy(), oracle.knn(p1[0], p2[0], 3))
        assert torch.equal(found.knn[1, :, 2], torch.zeros(6, 3))
        assert torch.equal(knn_gather(p2, found.idx)[0], p2[0][found.idx[0]])
        manhattan = knn_points(p1, p2, norm=1, K=1)
        table = (p1[:, :, None] - p2[:, None]).abs().sum(-1)
        assert torch.allclose(manhattan.dists[..., 0], table.amin(2))
        dists, idx, knn = knn_points(p1, p2, K=2)
        assert knn is None
        assert dists.shape == idx.shape == (2, 6, 2)

    def test_ball_query(self) -> None:
        from pytorch3d.ops import ball_query

        p1, p2 = torch.rand(1, 5, 3), torch.rand(1, 60, 3)
        found = ball_query(p1, p2, K=7, radius=0.4)
        assert np.array_equal(found.idx[0].numpy(), oracle.ball(p1[0], p2[0], 0.4, 7))
        padded = found.idx < 0
        assert (found.dists[padded] == 0).all()
        assert (found.knn[padded] == 0).all()
        with pytest.raises(ValueError, match="lengths2 must be in"):
            ball_query(p1, p2, lengths2=torch.tensor([61]))

    def test_the_radius_is_squared_in_float32(self) -> None:
        from pytorch3d.ops import ball_query

        point = torch.tensor([[[0.09999999403953552, 2.160400981665589e-05, 0.0]]])
        assert ball_query(torch.zeros(1, 1, 3), point, K=1, radius=0.1).idx.item() == 0

    def test_taken_points_stay_in_the_race(self) -> None:
        from pytorch3d.ops import sample_farthest_points

        assert sample_farthest_points(torch.zeros(1, 4, 3), K=3)[1].tolist() == [[0, 0, 0]]

    def test_farthest_points_are_found_in_float32(self) -> None:
        from pytorch3d.ops import sample_farthest_points

        line = torch.tensor([[[0.0], [1.0], [1.0 + 2**-30]]], dtype=torch.float64)
        points, index = sample_farthest_points(line, K=2)
        assert index.tolist() == [[0, 1]]  # the third is farther in float64 alone
        assert points.dtype == torch.float32

    def test_farthest_points(self) -> None:
        from pytorch3d.ops import sample_farthest_points

        points = torch.randn(3, 30, 3, requires_grad=True)
        lengths = torch.tensor([30, 4, 0])
        sampled, index = sample_farthest_points(points, lengths, K=[5, 6, 2])
        assert sampled.shape == (3, 6, 3)
        assert index[0].tolist() == [*oracle.fps(points[0].detach(), 5, stay=True), -1]
        assert index[1].tolist() == [*oracle.fps(points[1, :4].detach(), 4, stay=True), -1, -1]
        assert index[2].tolist() == [-1] * 6
        assert (sampled[2] == 0).all()
        sampled.sum().backward()
        assert points.grad[0].sum() == 15
        torch.manual_seed(1)
        starts = {
            int(sample_farthest_points(points, K=1, random_start_point=True)[1][0, 0])
            for _ in range(9)
        }
        assert len(starts) > 1

    def test_chamfer_takes_cloud_objects(self) -> None:
        from pytorch3d.loss import chamfer_distance

        class Clouds:
            def __init__(self, points: torch.Tensor, lengths: torch.Tensor) -> None:
                self.points, self.lengths = points, lengths

            def points_padded(self) -> torch.Tensor:
                return self.points

            def num_points_per_cloud(self) -> torch.Tensor:
                return self.lengths

            def normals_padded(self) -> None:
                return None

        x, y = torch.rand(2, 5, 3), torch.rand(2, 6, 3)
        lengths = torch.tensor([5, 2])
        loss, normals = chamfer_distance(Clouds(x, lengths), y)
        assert normals is None
        assert torch.equal(loss, chamfer_distance(x, y, lengths)[0])


class TestPointops:
    def test_sampling_and_queries(self) -> None:
        import pointops

        cloud = make_cloud("uniform", 100) + 10
        offset = torch.tensor([60, 100], dtype=torch.int32)
        new_offset = torch.tensor([20, 30], dtype=torch.int32)
        taken = pointops.farthest_point_sampling(cloud, offset, new_offset)
        assert taken.dtype == torch.int32
        wanted = oracle.fps(cloud[:60], 20, stay=True, slots=32)
        assert taken[:20].tolist() == wanted
        assert torch.equal(pointops.furthestsampling(cloud, offset, new_offset), taken)
        centres = cloud[taken.long()]
        index, distance = pointops.knn_query(5, cloud, offset, centres, new_offset)
        assert np.array_equal(index[20:].numpy(), oracle.knn(centres[20:], cloud[60:], 5) + 60)
        assert index.dtype == torch.int32
        old = pointops.knnquery(5, cloud, centres, offset, new_offset)
        assert torch.equal(old[0], index)
        assert torch.equal(old[1], distance)
        few, far = pointops.knn_query(4, cloud[:2], torch.tensor([2], dtype=torch.int32))
        assert few[:, 2:].tolist() == [[-1, -1]] * 2
        assert (far[:, 2:] == 1e5).all()

    def test_ball_query_sorts_strides_and_returns_distances(self) -> None:
        import pointops

        line = torch.arange(20.0)[:, None] * torch.tensor([1.0, 0, 0])
        offset = torch.tensor([20], dtype=torch.int32)
        one = torch.tensor([1], dtype=torch.int32)
        index, distance = pointops.ball_query(4, 8.5, 0.0, line, offset, line[:1], one)
        # 9 candidates 0..8, step 2.25: places 0, 2, 4, 6 of the sorted list
        assert index.tolist() == [[0, 2, 4, 6]]
        assert distance.tolist() == [[0.0, 2.0, 4.0, 6.0]]
        with pytest.raises(
            ValueError, match=r"min_radius must be in \[0, 1.0\), max_radius, got 2"
        ):
            pointops.ball_query(4, 1.0, 2.0, line, offset)
        index, distance = pointops.ball_query(4, 3.5, 2.0, line, offset, line[:1], one)
        assert index.tolist() == [[0, 2, 3, -1]]  # itself is kept: d^2 <= 1e-5
        assert distance[0, 3] == 1e5
        # d^2 = 5e-5 is neither coincident (1e-5) nor in the shell
        near = torch.tensor([[0.0, 0, 0], [0.00707, 0, 0], [0.003, 0, 0]])
        three = torch.tensor([3], dtype=torch.int32)
        index, _ = pointops.ball_query(4, 2.0, 1.0, near, three, near[:1], one)
        assert index.tolist() == [[0, 2, -1, -1]]
        # all of 200 coincident points are kept, however small the radius: places 0 and 100
        heap = torch.zeros(200, 3)
        many = torch.tensor([200], dtype=torch.int32)
        index, _ = pointops.ball_query(2, 1e-3, 0.0, heap + 1e-4, many, heap[:1], one)
        assert index.tolist() == [[0, 100]]
        index, _ = pointops.ball_query(2, 1e-4, 0.0, heap + 1e-3, many, heap[:1], one)
        assert index.tolist() == [[0, 100]]
        index, distance = pointops.random_ball_query(4, 8.5, 2.0, line, offset, line[:1], one)
        assert set(index[0].tolist()) <= {0, 2, 3, 4, 5, 6, 7, 8}
        assert len(set(index[0].tolist())) == 4
        assert torch.equal(distance[0], line[index[0].long(), 0])

    def test_groups(self) -> None:
        import pointops

        cloud, feat = torch.rand(30, 3), torch.rand(30, 4)
        offset = torch.tensor([10, 30], dtype=torch.int32)
        index = torch.tensor([[0, -1], [29, 3]])
        grouped = pointops.grouping(index, feat, cloud, cloud[:2], with_xyz=True)
        assert grouped.shape == (2, 2, 7)
        assert (grouped[0, 1] == 0).all()
        assert torch.equal(grouped[1, 0, :3], cloud[29] - cloud[1])
        assert torch.equal(pointops.grouping2(feat, index.clamp_min(0))[1], feat[[29, 3]])
        assert torch.equal(pointops.grouping(feat, index.clamp_min(0))[1], feat[[29, 3]])
        groups, at = pointops.knn_query_and_group(feat, cloud, offset, nsample=4, with_xyz=True)
        assert groups.shape == (30, 4, 7)
        assert torch.equal(at[:, 0].long(), torch.arange(30))
        old = pointops.queryandgroup(4, cloud, cloud, feat, None, offset, offset)
        assert torch.equal(old, groups)
        _dilated, at = pointops.query_and_group(3, cloud, None, feat, None, offset, offset, 1)
        every, _ = pointops.knn_query(5, cloud, offset)
        assert torch.equal(at, every[:, ::2])
        groups, _ = pointops.ball_query_and_group(feat, cloud, offset, max_radio=0.5, nsample=4)
        assert groups.shape == (30, 4, 4)

    def test_interpolation(self) -> None:
        import pointops

        cloud, feat = torch.rand(20, 3), torch.rand(20, 4)
        offset = torch.tensor([20], dtype=torch.int32)
        same = pointops.interpolation(cloud, cloud, feat, offset, offset)
        assert torch.allclose(same, feat, atol=1e-5)
        two = pointops.interpolation(
            cloud[:2], cloud[:1], feat[:2], torch.tensor([2]), torch.tensor([1])
        )
        assert torch.allclose(two[0], feat[0], atol=1e-5)  # the missing third weighs nothing

    def test_attention_and_aggregation(self) -> None:
        import pointops

        n, samples, channels = 6, 3, 8
        index = torch.randint(0, n, (n, samples))
        values = torch.rand(n, channels, dtype=torch.float64, requires_grad=True)
        position = torch.rand(n, samples, channels, dtype=torch.float64)
        weight = torch.rand(n, samples, 2, dtype=torch.float64, requires_grad=True)
        out = pointops.aggregation(values, position, weight, index)
        full = weight.repeat(1, 1, channels // 2)
        assert torch.allclose(out, ((values[index] + position) * full).sum(1))
        assert torch.equal(
            pointops.subtraction(values, values, index)[2, 1], values[2] - values[index[2, 1]]
        )
        query, key = torch.rand(2, n, 2, 4, dtype=torch.float64)
        target, refer = torch.randint(0, n, (2, 15))
        scale = torch.rand(4, dtype=torch.float64)
        relation = pointops.attention_relation_step(query, key, scale, target, refer)
        assert torch.allclose(relation[3], (query[target[3]] * key[refer[3]] * scale).sum(1))
        fused = pointops.attention_fusion_step(relation, key, target, refer)
        wanted = torch.zeros(n, 2, 4, dtype=torch.float64)
        for pair in range(15):
            wanted[target[pair]] += relation[pair][:, None] * key[refer[pair]]
        assert torch.allclose(fused, wanted)
        assert torch.autograd.gradcheck(
            lambda v, w: pointops.aggregation(v, position, w, index), (values, weight)
        )

    def test_offsets(self) -> None:
        import pointops

        batch = torch.tensor([0, 0, 1, 3])
        assert pointops.batch2offset(batch).tolist() == [2, 3, 3, 4]
        assert pointops.batch2offset(batch).dtype == torch.int32
        assert torch.equal(pointops.offset2batch(pointops.batch2offset(batch)), batch)


class TestPointops2:
    def test_pairs_in_any_order_and_query_by_query_agree(self) -> None:
        from pointops2 import pointops

        rows, heads, width, pairs, size = 9, 2, 4, 40, 5
        query, key = torch.rand(2, rows, heads, width)
        table_q, table_k = torch.rand(2, size, heads, width, 3)
        target = torch.randint(0, rows, (pairs,)).sort().values
        refer, where = torch.randint(0, rows, (pairs,)), torch.randint(0, size, (pairs, 3)).int()
        counts = target.bincount()
        bounds = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
        pair = target.int(), refer.int()
        flat = pointops.attention_step1(query, key, *pair)
        assert torch.allclose(flat, (query[target] * key[refer]).sum(-1))
        again = pointops.attention_step1_v2(query, key, pair[1], bounds, counts.max())
        assert torch.equal(again, flat)
        one = pointops.dot_prod_with_idx(query, pair[0], table_q, where)
        picked = torch.stack([table_q[where[:, axis].long(), ..., axis] for axis in range(3)])
        assert torch.allclose(one, (query[target] * picked.sum(0)).sum(-1), rtol=1e-5)
        both = pointops.dot_prod_with_idx_v2(query, pair[0], key, pair[1], table_q, table_k, where)
        two = pointops.dot_prod_with_idx(key, pair[1], table_k, where)
        assert torch.equal(both, one + two)
        third = pointops.dot_prod_with_idx_v3(
            query, bounds, counts.max(), key, pair[1], table_q, table_k, where
        )
        assert torch.equal(third, both)
        values = pointops.attention_step2_with_rel_pos_value(flat, key, *pair, table_k, where)
        picked = torch.stack([table_k[where[:, axis].long(), ..., axis] for axis in range(3)])
        wanted = torch.zeros(rows, heads, width)
        wanted.index_add_(0, target, flat[..., None] * (key[refer] + picked.sum(0)))
        assert torch.allclose(values, wanted[: len(values)], rtol=1e-5)
        second = pointops.attention_step2_with_rel_pos_value_v2(
            flat, key, bounds, counts.max(), pair[1], table_k, where
        )
        assert second.shape == (rows, heads, width)
        assert torch.equal(second[: len(values)], values)
        assert pointops.attention_step2(flat, key, pair[0] * 0, pair[1]).shape[0] == 1

    def test_neighbours(self) -> None:
        import pointops
        import pointops2.pointops as second

        cloud, feat = torch.rand(40, 3), torch.rand(40, 4)
        ends = torch.tensor([16, 40], dtype=torch.int32)
        groups, index = second.queryandgroup(
            4, cloud, cloud, feat, None, ends, ends, return_indx=True
        )
        assert torch.equal(groups, pointops.queryandgroup(4, cloud, cloud, feat, None, ends, ends))
        assert torch.equal(index, pointops.knn_query(4, cloud, ends)[0])
        patches, taken = second.Divide2Patch(8, cloud, ends, return_offset=True)
        assert taken.tolist() == [2, 5]
        assert patches.shape == (5, 8)
        assert (patches[:2] < 16).all()
        assert second.Divide2Patch(8, cloud, ends, anchor_scale=4).shape == (10, 8)
        soft = second.interpolation_v2(cloud, cloud + 0.1, feat, ends, ends)
        plain = second.interpolation(cloud, cloud + 0.1, feat, ends, ends)
        assert torch.allclose(soft, plain, atol=1e-4)
        assert torch.equal(second.grouping(feat, index), feat[index.long()])
