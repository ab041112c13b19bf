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


def test_index_refuses_a_changed_cloud(backend: str) -> None:
    cloud = make_cloud("uniform", 20)
    index = SpatialIndex(cloud)
    cloud += 1
    with pytest.raises(ValueError, match="points must be unchanged since the index was built"):
        index.knn(cloud, 1)
