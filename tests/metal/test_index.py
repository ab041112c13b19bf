"""Searches through the Metal index, under the harness: they find what brute force finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from metal_emu import Session, installed
from point_oracle import RADII, make_cloud

from sparse3d import _registry
from sparse3d.pointops import _clouds
from sparse3d.pointops.ball_query import search as ball_search
from sparse3d.pointops.knn import search as knn_search


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Every search builds an index, and balls ask it after 32 rows."""
    with installed() as running:
        from sparse3d.metal import ball_query as balls
        from sparse3d.metal import index

        monkeypatch.setattr(index, "_WORTH", 0)
        monkeypatch.setattr(balls, "_FIRST_ROWS", 32)
        yield running


Found = tuple[torch.Tensor, torch.Tensor]


def both(session: Session, kernel: str, run: Callable[[], Found]) -> None:
    """The reference's bytes, and by way of the index."""
    with _registry.force("reference"):
        expected = run()
    before = len(session.launches(kernel))
    with _registry.force("metal"), _registry.strict():
        got = run()
    assert len(session.launches(kernel)) > before
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("shape", ["uniform", "lattice", "clustered", "duplicated", "lidar"])
def test_more_than_one_outer_box(session: Session, shape: str) -> None:
    cloud = make_cloud(shape, 2600, 1)
    query = torch.cat([make_cloud(shape, 20, 2), cloud[::200], cloud[:1] + 50])
    clouds = _clouds.dense(1, len(query), len(cloud))
    for k, metric in ((1, "squared"), (16, "euclidean"), (40, "l1")):
        both(session, "sp_knn_index", lambda: knn_search(query, cloud, clouds, k, metric))  # noqa: B023
    for k, scale in ((1, 1.0), (20, 0.5), (70, 3.0)):
        square = (RADII[shape] * scale) ** 2
        both(session, "sp_ball_index", lambda: ball_search(query, cloud, clouds, square, k))  # noqa: B023


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_clouds_of_every_size_in_one_index(session: Session, dim: int) -> None:
    """Empty ones, clouds smaller than a box, larger than an outer box, and k beyond the cloud."""
    sizes = torch.tensor([0, 3, 1100, 0, 33, 700])
    ends = sizes.cumsum(0)
    cloud = make_cloud("lattice", int(ends[-1]))[:, :dim].contiguous()
    query = cloud[::23].contiguous()
    places = torch.bucketize(torch.arange(0, len(cloud), 23), ends, right=True)
    counts = torch.bincount(places, minlength=6).cumsum(0)
    zero = ends.new_zeros(1)
    clouds = _clouds.flat(torch.cat([zero, counts]), torch.cat([zero, ends]))
    both(session, "sp_knn_index", lambda: knn_search(query, cloud, clouds, 9))
    both(session, "sp_ball_index", lambda: ball_search(query, cloud, clouds, 1.5, 12))
    square = 2.5
    both(
        session,
        "sp_ball_index",
        lambda: ball_search(cloud, cloud, _clouds.dense(1, 60, 60), square, 40, True),
    )


def test_more_than_32_outer_boxes(session: Session) -> None:
    cloud = make_cloud("uniform", 34_000, 3)
    query = cloud[:: len(cloud) // 3].contiguous()
    clouds = _clouds.dense(1, len(query), len(cloud))
    both(session, "sp_knn_index", lambda: knn_search(query, cloud, clouds, 5))
    both(session, "sp_ball_index", lambda: ball_search(query, cloud, clouds, 0.002, 5))


def test_coordinates_whose_squares_overflow(session: Session) -> None:
    cloud = make_cloud("uniform", 200) * 1e25
    clouds = _clouds.dense(1, 5, len(cloud))
    both(session, "sp_knn_index", lambda: knn_search(cloud[:5].contiguous(), cloud, clouds, 7))


def test_the_index_has_the_same_bytes_under_every_schedule() -> None:
    cloud = make_cloud("clustered", 1500)
    clouds = _clouds.dense(1, 1, len(cloud))
    made = []
    for seed in (0, 700):
        with installed(seed=seed):
            from sparse3d.metal import index

            made.append(index.build(cloud, clouds))
    assert torch.equal(*made)


def test_too_many_axes_have_no_index() -> None:
    with installed():
        from sparse3d.metal import index

        clouds = _clouds.dense(1, 4, 40)
        assert not index.can(torch.zeros(40, 4), clouds)
        assert not index.can(torch.zeros(40, 3, dtype=torch.float64), clouds)
        assert not index.can(torch.zeros(0, 3), _clouds.dense(1, 4, 0))
        assert index.can(torch.zeros(40, 3), clouds)
