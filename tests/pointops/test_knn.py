from __future__ import annotations

import numpy as np
import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import SpatialIndex, knn, three_nn
from sparse3d.pointops._clouds import dense, flat
from sparse3d.pointops.knn import search


def _check(query: torch.Tensor, reference: torch.Tensor, k: int) -> None:
    distance, index = knn(query[None], reference[None], k)
    got = index[0].numpy()
    assert np.array_equal(got, oracle.knn(query, reference, k))
    oracle.check_against_float64(query, reference, got)
    kept = np.take_along_axis(oracle.distances32(query, reference), got, 1)
    assert np.array_equal(distance[0].numpy(), np.sqrt(kept))


@pytest.mark.parametrize("k", [1, 3, 16, 40])
def test_equals_brute_force(backend: str, shape: str, k: int) -> None:
    _check(make_cloud(shape, 150, 1), make_cloud(shape, 700, 2), k)


def test_cloud_in_itself(backend: str, shape: str) -> None:
    cloud = make_cloud(shape, 300 if backend == "metal" else 1200)
    _check(cloud, cloud, 9)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 31, 32, 33, 64, 65, 257])
def test_sizes_around_blocks(backend: str, size: int) -> None:
    _check(make_cloud("uniform", 5, 3), make_cloud("lattice", size, 4), min(size, 5))
    _check(make_cloud("uniform", 5, 3), make_cloud("lattice", size, 4), size)


@pytest.mark.parametrize("dim", [1, 2, 4, 5, 16, 67])
def test_any_dimension(backend: str, dim: int) -> None:
    draw = torch.Generator().manual_seed(dim)
    _check(torch.randn(40, dim, generator=draw), torch.randn(130, dim, generator=draw), 6)
    _check(
        torch.randint(0, 3, (40, dim), generator=draw).float(),
        torch.randint(0, 3, (130, dim), generator=draw).float(),
        20,
    )


def test_large_k(backend: str) -> None:
    queries, rows = (1, 1050) if backend == "metal" else (4, 1500)
    _check(make_cloud("uniform", queries, 1), make_cloud("lattice", rows, 2), 1024)


def test_far_away_queries_and_large_coordinates(backend: str) -> None:
    reference = make_cloud("uniform", 400)
    far = torch.cat([reference[:3] * 1e3, reference[:3] + 1e6, torch.full((1, 3), -3e18)])
    _check(far, reference, 8)
    _check(reference[:20] + 4e5, reference + 4e5, 8)


def test_two_clusters_far_apart(backend: str) -> None:
    """100 points in a unit cube and 3 at about 1e3: exactly k neighbours each."""
    draw = torch.Generator().manual_seed(1)
    cloud = torch.cat([torch.rand(100, 3, generator=draw), 1e3 + torch.rand(3, 3, generator=draw)])
    _check(cloud, cloud, 4)
    _check(cloud[:32], cloud[:32], 8)


def test_ties_are_ordered_by_index(backend: str) -> None:
    reference = torch.tensor([[[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, -1]]])
    distance, index = knn(torch.zeros(1, 1, 3), reference, 5)
    assert index[0, 0].tolist() == [3, 0, 1, 2, 4]
    assert distance[0, 0].tolist() == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_widened_exactly(backend: str, dtype: torch.dtype) -> None:
    cloud = make_cloud("uniform", 400).to(dtype)
    distance, index = knn(cloud[None, :50], cloud[None], 12)
    assert distance.dtype == torch.float32
    assert np.array_equal(index[0].numpy(), oracle.knn(cloud[:50], cloud, 12))


def test_float64(backend: str) -> None:
    if backend == "metal":
        pytest.skip("no float64 on Metal")
    cloud = make_cloud("uniform", 300).double() + 1e-12 * torch.rand(300, 3, dtype=torch.float64)
    distance, index = knn(cloud[None], cloud[None], 5)
    assert distance.dtype == torch.float64
    wanted = np.argsort(oracle.distances64(cloud, cloud), 1, kind="stable")[:, :5]
    assert np.array_equal(index[0].numpy(), wanted)


def test_strides_do_not_matter(backend: str) -> None:
    """A transposed view gave wrong distances elsewhere."""
    wide = torch.randn(2, 3, 120)
    view, shifted = wide.transpose(1, 2), wide.transpose(1, 2)[:, 7:, :]
    for one, two in zip(
        knn(view, shifted, 4), knn(view.contiguous(), shifted.contiguous(), 4), strict=False
    ):
        assert torch.equal(one, two)


def test_padded_and_uneven_clouds(backend: str) -> None:
    query, reference = make_cloud("uniform", 30, 1), make_cloud("lattice", 60, 2)
    clouds = dense(3, 10, 20, torch.tensor([10, 0, 4]), torch.tensor([20, 5, 2]))
    distance, index = search(query, reference, clouds, 3)
    assert np.array_equal(index[:10].numpy(), oracle.knn(query[:10], reference[:20], 3))
    assert (index[10:20] == -1).all()
    assert torch.isinf(distance[10:20]).all()
    assert np.array_equal(index[20:24, :2].numpy(), oracle.knn(query[20:24], reference[40:42], 2))
    assert (index[20:24, 2] == -1).all()
    assert (index[24:] == -1).all()


def test_many_clouds_in_one_call(backend: str) -> None:
    sizes = torch.tensor([0, 3, 50, 1, 0, 200])
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    cloud = make_cloud("clustered", 254)
    _, index = search(cloud, cloud, flat(bounds, bounds), 3)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=False):
        if last > first:
            k = min(3, last - first)
            wanted = oracle.knn(cloud[first:last], cloud[first:last], k) + first
            assert np.array_equal(index[first:last, :k].numpy(), wanted)
            assert (index[first:last, k:] == -1).all()


def test_l1_norm(backend: str, shape: str) -> None:
    query, reference = make_cloud(shape, 60, 1), make_cloud(shape, 300, 2)
    distance, index = search(query, reference, dense(1, 60, 300), 7, "l1")
    table = oracle.distances32(query, reference, 1)
    order = np.lexsort((np.broadcast_to(np.arange(300), table.shape), table), axis=1)[:, :7]
    assert np.array_equal(index.numpy(), order)
    assert np.array_equal(distance.numpy(), np.take_along_axis(table, order, 1))


@pytest.mark.parametrize("metric", ["l1", "squared", "euclidean"])
def test_gradients(metric: str) -> None:
    draw = torch.Generator().manual_seed(3)
    query = torch.randn(5, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    reference = torch.randn(9, 3, generator=draw, dtype=torch.float64, requires_grad=True)
    clouds = dense(1, 5, 9)

    def distances(q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        return search(q, p, clouds, 4, metric)[0]

    assert torch.autograd.gradcheck(distances, (query, reference))
    if metric != "l1":
        assert torch.autograd.gradgradcheck(distances, (query, reference))


def test_the_public_distances_carry_no_gradient(backend: str) -> None:
    cloud = make_cloud("uniform", 9).requires_grad_()
    for query, ref in ((cloud, cloud.detach()), (cloud.detach(), cloud)):
        for found in (
            knn(query[None], ref[None], 2),
            three_nn(query[None], ref[None]),
            SpatialIndex(ref).knn(query, 2),
        ):
            assert not any(part.requires_grad for part in found)


def test_empty(backend: str) -> None:
    distance, index = knn(torch.zeros(2, 0, 3), torch.zeros(2, 4, 3), 2)
    assert distance.shape == index.shape == (2, 0, 2)
    distance, index = knn(torch.zeros(2, 3, 3), torch.zeros(2, 4, 3), 0)
    assert distance.shape == (2, 3, 0)
    assert index.dtype == torch.int64
    assert knn(torch.zeros(0, 3, 3), torch.zeros(0, 0, 3), 0)[1].shape == (0, 3, 0)


def test_bad_input(backend: str) -> None:
    cloud = torch.zeros(1, 4, 3)
    with pytest.raises(ValueError, match=r"k must be in \[0, 4\], got 5"):
        knn(cloud, cloud, 5)
    with pytest.raises(ValueError, match=r"^k must be >= 0, got -1$"):
        knn(cloud, cloud, -1)
    with pytest.raises(TypeError, match="k must be an integer"):
        knn(cloud, cloud, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"k must be in \[0, 1024\], got 1025"):
        knn(torch.zeros(1, 1, 3), torch.zeros(1, 2000, 3), 1025)
    with pytest.raises(ValueError, match="of one dtype"):
        knn(cloud, cloud.double(), 1)
    with pytest.raises(ValueError, match="on one device"):
        knn(cloud, cloud.to("meta"), 1)
    with pytest.raises(ValueError, match="of 3 coordinates"):
        knn(cloud, torch.zeros(1, 4, 2), 1)
    with pytest.raises(ValueError, match="of batch size 1"):
        knn(cloud, torch.zeros(2, 4, 3), 1)
    broken = cloud.clone()
    broken[0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="query must be finite"):
        knn(broken, cloud, 1)
    with pytest.raises(ValueError, match="ref must be finite"):
        knn(cloud, broken, 1)
