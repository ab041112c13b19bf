from __future__ import annotations

import torch
from point_oracle import make_cloud

from sparse3d import pointops
from sparse3d.pointops import reference


def test_same_results_by_name(shape: str) -> None:
    cloud = make_cloud(shape, 80)[None]
    assert torch.equal(
        reference.furthest_point_sample(cloud, 9, 2), pointops.furthest_point_sample(cloud, 9, 2)
    )
    for one, two in zip(
        reference.knn(cloud, cloud, 4), pointops.knn(cloud, cloud, 4), strict=False
    ):
        assert torch.equal(one, two)
    for one, two in zip(
        reference.ball_query(cloud, cloud, 0.5, 4),
        pointops.ball_query(cloud, cloud, 0.5, 4),
        strict=False,
    ):
        assert torch.equal(one, two)
