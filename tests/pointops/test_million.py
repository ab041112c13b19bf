"""A million points: the index, and searches that build one, against the reference's brute force."""

from __future__ import annotations

import pytest
import torch
from point_oracle import make_cloud

from sparse3d import _registry
from sparse3d.pointops import SpatialIndex, ball_query, knn

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
