"""Hundreds of thousands of points against brute force: index, searches that build one, sampling."""

from __future__ import annotations

from collections.abc import Callable

import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d import _registry
from sparse3d.pointops import SpatialIndex, ball_query, furthest_point_sample, knn

N, Q = 1_000_000, 40


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["uniform", "clustered"])
def test_an_index_of_a_million_points_is_exact(shape: str) -> None:
    if _registry.load("cpu"):
        pytest.skip(f"cpu: {_registry.load('cpu')}")
    cloud = make_cloud(shape, N, 1)
    query = torch.cat([cloud[:: N // (Q // 2)], make_cloud(shape, Q // 2, 2)])
    radius = float((cloud[:1000, None] - cloud[None, :1000]).norm(dim=-1).median()) / 20
    with _registry.force("reference"):
        near = knn(query[None], cloud[None], 16)
        inside = ball_query(query[None], cloud[None], radius, 32)
    assert int((inside[1] >= 0).sum()) > Q
    index = SpatialIndex(cloud)
    for wanted, one, other in (
        (near, index.knn(query, 16), knn(query[None], cloud[None], 16)),
        (
            inside,
            index.ball_query(query, radius, 32),
            ball_query(query[None], cloud[None], radius, 32),
        ),
    ):
        for expected, mine, again in zip(wanted, one, other, strict=True):
            assert torch.equal(mine, expected[0])
            assert torch.equal(again, expected)


@pytest.mark.slow
@pytest.mark.parametrize("stated", [1, 2])
def test_sampling_of_a_large_cloud_is_exact(
    cpu_library: None, threads: Callable[[int], None], shape: str, stated: int
) -> None:
    cloud = make_cloud(shape, 150_000, 3)
    threads(stated)
    with _registry.force("cpu"):
        taken = furthest_point_sample(cloud[None], 100, 7)[0].tolist()
    assert taken == oracle.fps(cloud, 100, 7)
