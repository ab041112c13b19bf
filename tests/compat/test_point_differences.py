"""Lines under "What differs" of point packages that no other test reaches; see also
test_pointops_differences.py.

The table of which line is exercised where is in test_differences.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import point_oracle as oracle
import pytest
import torch
from compat.point_questions import BY_DISTANCE, CROSS, LINE, NAN, ends, follows_the_seed

from sparse3d.compat import (
    knn_cuda,
    pointops,
    torch_cluster,
    torch_scatter,
)
from sparse3d.compat.pointnet2_ops import pointnet2_utils
from sparse3d.compat.pointops2 import pointops as pointops2
from sparse3d.compat.pytorch3d import loss, ops

# ------------------------------------------------------------------------- PointNet++, KNN_CUDA


def fused(step: np.ndarray) -> np.float32:
    """A squared length as a compiler that fuses multiply and add rounds it."""
    x, y, z = (np.float64(part) for part in step)
    return np.float32(z * z + np.float64(np.float32(y * y + np.float64(np.float32(x * x)))))


def test_products_are_rounded_on_their_own() -> None:
    cloud = torch.tensor([[0.0, 0, 0], [5.77, 6.65, 5.28], [6.65, 5.28, 5.77]])
    apart = oracle.distances32(cloud[:1], cloud)[0]
    assert apart[1] < apart[2]  # the farthest is the third, and the second where they are fused
    assert fused(cloud[1].numpy()) > fused(cloud[2].numpy())
    assert pointnet2_utils.furthest_point_sample(cloud[None], 2).tolist() == [[0, 2]]
    assert pointnet2_utils.FurthestPointSampling.apply(cloud[None], 2).tolist() == [[0, 2]]
    for module in (pointops, pointops2):
        assert module.furthestsampling(cloud, ends(3), ends(2)).tolist() == [0, 2]
    assert pointops.farthest_point_sampling(cloud, ends(3), ends(2)).tolist() == [0, 2]


@pytest.mark.parametrize(
    "run", [pointnet2_utils.three_interpolate, pointnet2_utils.ThreeInterpolate.apply]
)
def test_weights_of_three_points_receive_their_gradient(run: Callable[..., torch.Tensor]) -> None:
    features = torch.tensor([[[1.0, 2.0, 4.0, 8.0], [1.0, 1.0, 1.0, 1.0]]])
    weight = torch.ones(1, 1, 3, requires_grad=True)
    run(features, torch.tensor([[[3, 0, 1]]], dtype=torch.int32), weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[[9.0, 2.0, 3.0]]]


@pytest.mark.parametrize("run", [pointnet2_utils.ball_query, pointnet2_utils.BallQuery.apply])
def test_radii_are_squared_in_float32_and_compared_strictly(
    run: Callable[..., torch.Tensor],
) -> None:
    # Between fl32(0.1 * 0.1) of the doubles and the product of float32 radii; then the radius.
    near = torch.tensor([[[0.09999999403953552, 2.160400981665589e-05, 0.0]]])
    apart = oracle.distances32(torch.zeros(1, 3), near[0])[0, 0]
    assert np.float32(0.1 * 0.1) <= apart < np.float32(0.1) * np.float32(0.1)
    centre = torch.zeros(1, 1, 3)
    cloud = torch.cat([torch.tensor([[[9.0, 0, 0]]]), near], 1)
    assert run(0.1, 1, cloud, centre).tolist() == [[[1]]]
    cloud[0, 1] = torch.tensor([0.5, 0, 0])
    assert run(0.5, 1, cloud, centre).tolist() == [[[0]]]  # no hit: zeros
    with pytest.raises(ValueError, match="radius must be such that its square fits float32"):
        run(1e-20, 1, cloud, centre)


def test_float64_and_ties_of_knn_cuda() -> None:
    wide = torch.tensor([[1.0 + 2**-40, 0, 0], [1, 0, 0]], dtype=torch.float64)  # float32: a tie
    centre = torch.zeros(1, 3, dtype=torch.float64)

    def whole(ref: torch.Tensor, query: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        distance, index = knn_cuda.KNN(k, transpose_mode=True)(ref[None], query[None])
        return distance[0], index[0]

    def single(ref: torch.Tensor, query: torch.Tensor, k: int) -> tuple[torch.Tensor, ...]:
        distance, index = knn_cuda.knn(ref.t(), query.t(), k)
        return distance.t(), index.t()

    for run in (whole, single):
        distance, index = run(wide, centre, 2)
        assert distance.dtype == torch.float64
        assert (distance.tolist(), index.tolist()) == ([[1.0, 1.0 + 2**-40]], [[1, 0]])
        assert run(CROSS, CROSS[3:4], 5)[1].tolist() == [BY_DISTANCE]
        with pytest.raises(ValueError, match=r"k must be in \[0, 5\], got 6"):
            run(CROSS, CROSS, 6)
        with pytest.raises(ValueError, match="ref must be finite"):
            run(CROSS * NAN, CROSS, 1)


def test_what_the_peer_compiles_counts_from_one() -> None:
    extension = knn_cuda.load_cpp_ext("knn")
    distance, index = extension.knn(CROSS.t(), CROSS[3:4].t(), 5)
    assert index[:, 0].tolist() == [place + 1 for place in BY_DISTANCE]
    assert distance[:, 0].tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="ext_name must be 'knn', got 'chamfer'"):
        knn_cuda.load_cpp_ext("chamfer")


# --------------------------------------------------------------------------------- torch_cluster

ROW = torch.arange(20).repeat_interleave(20)
COL = torch.arange(20).repeat(20)


def test_random_orders_follow_the_seed() -> None:
    node, bounds = torch.tensor([0]), torch.tensor([0, 3000])
    follows_the_seed(lambda: torch_cluster.fps(LINE, ratio=0.001))
    follows_the_seed(lambda: torch_cluster.graclus_cluster(ROW, COL))
    follows_the_seed(lambda: torch_cluster.neighbor_sampler(node, bounds, 4))


def test_neighbours_of_flat_clouds() -> None:
    assert torch_cluster.knn(CROSS, CROSS[3:4], 5)[1].tolist() == BY_DISTANCE
    far = torch_cluster.knn(LINE, LINE[:2], 2500)  # the peer's CUDA build takes 100
    assert far[1, :2500].tolist() == list(range(2500))
    assert far[1, 2500:2503].tolist() == [1, 0, 2]
    turned = torch.tensor([[9.0, 1, 0], [1, 1, 0], [0.1, 0, 0]])
    ones = torch.tensor([[1.0, 0, 0]])
    assert torch_cluster.knn(turned, ones, 3, cosine=True)[1].tolist() == [2, 0, 1]


def test_nearest_keeps_every_digit() -> None:
    x = torch.tensor([[0.0], [-1e6]])
    y = torch.tensor([[2e-3], [1e-3], [-1e6]])
    batch_x, batch_y = torch.tensor([0, 1]), torch.tensor([0, 0, 1])
    least = y.min()
    assert float(y[0] - least) == float(y[1] - least)  # what a cloud moved to 0 would find equal
    assert torch_cluster.nearest(x, y, batch_x, batch_y).tolist() == [1, 2]
    with pytest.raises(ValueError, match="batch_y must be of at least one point in every cloud"):
        torch_cluster.nearest(x, y[:2], batch_x, batch_y[:2])


# --------------------------------------------------------------------------------- torch_scatter


@pytest.mark.parametrize("name", ["scatter", "scatter_sum", "scatter_add", "scatter_mean"])
def test_half_sums_are_rounded_once_and_indices_checked(name: str) -> None:
    run = getattr(torch_scatter, name)
    few = torch.tensor([2048.0, 1, 1, 1, 1], dtype=torch.float16)  # 2048 + 1 is 2048 in float16
    total = 2052.0 if name != "scatter_mean" else 410.5  # 410.4 rounded to float16
    assert run(few, torch.zeros(5, dtype=torch.int64)).tolist() == [total]
    with pytest.raises(ValueError, match="index must be >= 0, got -1"):
        run(few, torch.tensor([0, 0, -1, 0, 0]))
    with pytest.raises(ValueError, match=r"index must be in \[0, 2\), dim_size, got 2"):
        run(few, torch.tensor([0, 0, 2, 0, 0]), dim_size=2)


def test_products_are_made_of_neighbours() -> None:
    src = torch.tensor([1e30, 1e-30, 1e-30, 1e30, 1e30, 1e-30])
    paired = np.float32(1e30) * np.float32(1e-30)
    wanted = np.float32(paired * paired) * paired
    assert torch_scatter.scatter_mul(src, torch.zeros(6, dtype=torch.int64)).item() == wanted
    swapped = torch.tensor([1e30, 1e30, 1e-30, 1e-30])  # infinity * 0
    assert torch_scatter.scatter_mul(swapped, torch.zeros(4, dtype=torch.int64)).isnan().all()


@pytest.mark.parametrize("kind", ["segment", "sum", "add", "mean", "min", "max"])
def test_segments_in_disorder_are_refused(kind: str) -> None:
    name = "segment" if kind == "segment" else f"segment_{kind}"
    src = torch.arange(6.0)
    with pytest.raises(ValueError, match="index must be sorted along its last axis"):
        getattr(torch_scatter, f"{name}_coo")(src, torch.tensor([0, 1, 0, 1, 1, 1]))
    for run in (getattr(torch_scatter, f"{name}_csr"), torch_scatter.gather_csr):
        data = src[:2] if run is torch_scatter.gather_csr else src
        with pytest.raises(ValueError, match="indptr must be ascending along its last axis"):
            run(data, torch.tensor([0, 4, 2]))
        with pytest.raises(ValueError, match="indptr must be "):
            run(data, torch.tensor([-1, 2, 4]))
    with pytest.raises(ValueError, match=r"indptr must be in \[0, 6\], got 7"):
        getattr(torch_scatter, f"{name}_csr")(src, torch.tensor([0, 4, 7]))


def test_logsumexp_of_infinity_and_nan() -> None:
    inf = float("inf")
    src = torch.tensor([[inf, 1.0], [-inf, 1.0], [NAN, 1.0], [inf, inf]])
    index = torch.arange(4).repeat_interleave(2)
    found = torch_scatter.scatter_logsumexp(src.reshape(-1), index)
    assert torch.allclose(found, src.logsumexp(1), equal_nan=True)
    nothing = torch.tensor([-inf, -inf])
    assert torch_scatter.scatter_logsumexp(nothing, torch.zeros(2).long(), dim_size=2).eq(0).all()


# ------------------------------------------------------------------------------------- pytorch3d


def test_neighbours_are_sorted_whatever_is_asked() -> None:
    for options in ({}, {"return_sorted": False}, {"version": 0}, {"version": 3}):
        found = ops.knn_points(CROSS[None, 3:4], CROSS[None], K=5, **options)
        assert found.idx.tolist() == [[BY_DISTANCE]]
        assert found.dists.tolist() == [[[0.0, 1.0, 1.0, 1.0, 1.0]]]


def test_random_starts_of_farthest_points() -> None:
    module = importlib.import_module("sparse3d.compat.pytorch3d.ops.sample_farthest_points")
    assert module.sample_farthest_points_naive is ops.sample_farthest_points
    follows_the_seed(lambda: ops.sample_farthest_points(LINE[None], None, 3, True)[1])


def test_chamfer_of_no_weight_and_of_no_points() -> None:
    x, y, none = torch.rand(2, 4, 3), torch.rand(2, 5, 3), torch.zeros(2)
    found = loss.chamfer_distance(x, y, weights=none, batch_reduction=None)
    assert (found[0].tolist(), found[1]) == ([0.0, 0.0], None)
    both = loss.chamfer_distance(
        x, y, weights=none, batch_reduction=None, point_reduction=None, x_normals=x
    )[0]
    assert [part.shape for part in both] == [(2, 4), (2, 5)]
    assert not any(part.any() for part in both)
    total = loss.chamfer_distance(x, y, weights=none)[0]
    assert (total.shape, total.item()) == ((), 0.0)
    empty = torch.tensor([0, 4])
    found = loss.chamfer_distance(x, y, x_lengths=empty, batch_reduction=None)[0]
    alone = loss.chamfer_distance(x[1:], y[1:], batch_reduction=None)[0]
    assert found.tolist() == [0.0, alone.item()]
