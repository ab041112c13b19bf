from __future__ import annotations

import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import SpatialIndex, ball_query, knn


def test_knn_gives_the_same(backend: str, shape: str) -> None:
    cloud, query = make_cloud(shape, 900, 1), make_cloud(shape, 70, 2)
    index = SpatialIndex(cloud)
    for k in (0, 1, 20):
        for one, two in zip(index.knn(query, k), knn(query[None], cloud[None], k), strict=False):
            assert torch.equal(one, two[0])
    for one, two in zip(
        SpatialIndex(cloud, backend="scan").knn(query, 4), index.knn(query, 4), strict=False
    ):
        assert torch.equal(one, two)


def test_ball_query_gives_the_same(backend: str, shape: str) -> None:
    cloud, query = make_cloud(shape, 900, 1), make_cloud(shape, 70, 2)
    index = SpatialIndex(cloud)
    for k in (0, 1, 20):
        found = index.ball_query(query, oracle.RADII[shape] * 2, k)
        for one, two in zip(
            found, ball_query(query[None], cloud[None], oracle.RADII[shape] * 2, k), strict=False
        ):
            assert torch.equal(one, two[0])


def test_the_radius_is_squared_as_without_an_index(backend: str) -> None:
    """The point lies between fl32(r * r) of the double product and fl32(fl32(r)^2)."""
    point = torch.tensor([[0.09999999403953552, 2.160400981665589e-05, 0.0]])
    assert SpatialIndex(point).ball_query(torch.zeros(1, 3), 0.1, 1)[1].item() == 0


def test_index_refuses_a_changed_cloud(backend: str) -> None:
    cloud = make_cloud("uniform", 20)
    index = SpatialIndex(cloud)
    cloud += 1
    with pytest.raises(ValueError, match="points must be unchanged since the index was built"):
        index.knn(cloud, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_inference_mode(backend: str, dtype: torch.dtype) -> None:
    outside = make_cloud("uniform", 60).to(dtype)
    wanted = knn(outside[None], outside[None], 4)
    with torch.inference_mode():
        inside = outside.clone()
        found = [SpatialIndex(points).knn(points, 4) for points in (inside, outside)]
        kept = SpatialIndex(inside)
        near = kept.ball_query(inside, 0.5, 4)
    for pair in (*found, kept.knn(outside, 4)):
        assert all(torch.equal(one, two[0]) for one, two in zip(pair, wanted, strict=True))
    dense = ball_query(outside[None], outside[None], 0.5, 4)
    assert all(torch.equal(one, two[0]) for one, two in zip(near, dense, strict=True))
    query = outside.clone().requires_grad_()
    kept.ball_query(query, 0.5, 4)[0].sum().backward()
    assert query.grad is not None


def test_tensors_of_inference_mode_are_copied(backend: str) -> None:
    with torch.inference_mode():
        cloud = make_cloud("uniform", 60)
        before = cloud.clone()
        index = SpatialIndex(cloud)
        cloud.zero_()
        for one, two in zip(index.knn(before, 3), knn(before[None], before[None], 3), strict=True):
            assert torch.equal(one, two[0])


def test_bad_origin_and_cell_size() -> None:
    cloud = make_cloud("uniform", 20)
    with pytest.raises(TypeError, match=r"origin must be a torch\.Tensor, got list"):
        SpatialIndex(cloud, origin=[0, 0, 0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"origin must be \[3\] of torch\.float32, got \[2\]"):
        SpatialIndex(cloud, origin=torch.zeros(2))
    with pytest.raises(TypeError, match="cell_size must be a number, got 'a'"):
        SpatialIndex(cloud, cell_size="a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cell_size must be finite and > 0, got 0"):
        SpatialIndex(cloud, cell_size=0)
