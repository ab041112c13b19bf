"""bench/_exact.py, which no number is printed without: it takes what is right and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from point_oracle import SHAPES, make_cloud

from sparse3d.pointops import ball_query, furthest_point_sample, knn

_SPEC = importlib.util.spec_from_file_location(
    "_exact", Path(__file__).parent.parent / "bench/_exact.py"
)
assert _SPEC
assert _SPEC.loader
exact = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(exact)


@pytest.mark.parametrize("shape", SHAPES)
def test_right_results_pass(shape: str) -> None:
    cloud = make_cloud(shape, 900)
    exact.fps(cloud, furthest_point_sample(cloud[None], 300))
    exact.knn(cloud, cloud, 16, knn(cloud[None], cloud[None], 16))
    exact.ball(cloud, cloud, 0.4, 8, ball_query(cloud[None], cloud[None], 0.4, 8))


def test_a_neighbour_that_is_not_the_nearest_is_seen() -> None:
    cloud = make_cloud("lattice", 200)  # every query is drawn; ties everywhere
    distances, indices = knn(cloud[None], cloud[None], 4)
    swapped = indices.clone()
    tied = torch.nonzero(distances[0, :, 2] == distances[0, :, 3])[0, 0]
    swapped[0, tied, 2:] = swapped[0, tied, 2:].flip(0)
    with pytest.raises(exact.Wrong, match=f"neighbours of query {tied}"):
        exact.knn(cloud, cloud, 4, (distances, swapped))
    moved = distances.clone()
    moved[0, 7, 3] = torch.nextafter(moved[0, 7, 3], torch.tensor(9.0))
    with pytest.raises(exact.Wrong, match="distances of query 7"):
        exact.knn(cloud, cloud, 4, (moved, indices))


def test_a_hit_on_the_surface_is_seen() -> None:
    cloud = make_cloud("lattice", 200)
    _, inside = ball_query(cloud[None], cloud[None], 1.0, 32)
    distances, closed = ball_query(cloud[None], cloud[None], 1.0 + 1e-6, 32)
    assert not torch.equal(inside, closed)
    with pytest.raises(exact.Wrong, match="hits of query"):
        exact.ball(cloud, cloud, 1.0, 32, (distances, closed))


@pytest.mark.parametrize("place", [0, 1, 150, 299])
def test_a_point_that_is_not_the_farthest_is_seen(place: int) -> None:
    cloud = make_cloud("uniform", 900)
    taken = furthest_point_sample(cloud[None], 300)
    left = np.setdiff1d(np.arange(900), taken.numpy())
    taken[0, place] = int(left[5])
    with pytest.raises(exact.Wrong, match=f"place {place} of"):
        exact.fps(cloud, taken)


def test_orders_may_part_by_rounding_alone() -> None:
    narrow = np.float32([1.0, 4.0])
    exact.agree(narrow, np.array([1.0 + 2.0**-24, 4.0]), "here")
    with pytest.raises(exact.Wrong, match="here: beyond the rounding of float32"):
        exact.agree(narrow, np.array([1.0, 4.00001]), "here")
