"""Lines under "What differs" of pointops and mps_pointops that no other test reaches.

The table of which line is exercised where is in test_differences.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from compat.point_questions import BY_DISTANCE, CROSS, LINE, NAN, ends, follows_the_seed

from sparse3d.compat import mps_pointops, pointops
from sparse3d.compat.mps_pointops import flat, graclus, grid, random_walk
from sparse3d.compat.pointops2 import pointops as pointops2

# -------------------------------------------------------------------------------------- pointops


def test_neighbours_beyond_the_peers_limit() -> None:
    every = pointops.knn_query(300, LINE[:300], ends(300))[0]
    assert every[0].tolist() == list(range(300))
    assert every[5, :5].tolist() == [5, 4, 6, 3, 7]
    for module in (pointops, pointops2):
        assert torch.equal(module.knnquery(300, LINE[:300], None, ends(300), None)[0], every)


def test_a_ball_of_more_candidates_than_the_peer_holds() -> None:
    """2,048 there. All 3,000 are members, sorted: places 0, 750, 1500, 2250, at true distances."""
    turned = LINE.flip(0)
    query = (4, 3000.0, 0.0, turned, ends(3000), turned[-1:], ends(1))
    index, distance = pointops.ball_query(*query)
    assert index.tolist() == [[2999, 2249, 1499, 749]]
    assert distance.tolist() == [[0.0, 750.0, 1500.0, 2250.0]]


def test_random_balls_have_no_limit_and_follow_the_seed() -> None:
    few = (4, 3000.0, 0.5, LINE, ends(3000), LINE[:1], ends(1))
    follows_the_seed(lambda: pointops.random_ball_query(*few)[0])
    torch.manual_seed(0)
    query = (3000, 3000.0, 0.0, LINE, ends(3000), LINE[:1], ends(1))
    index, _ = pointops.random_ball_query(*query)
    assert index[0].tolist() != list(range(3000))
    assert sorted(index[0].tolist()) == list(range(3000))


FEAT = torch.tensor([[1.0], [3.0], [100.0]])


@pytest.mark.parametrize("module", [pointops, pointops2])
def test_missing_neighbours(module: Any) -> None:
    """Two points and one: the third neighbour is missing, and there the last point, 100."""
    cloud = torch.tensor([[0.0, 0, 0], [2, 0, 0], [50, 0, 0]])
    middle = torch.tensor([[1.0, 0, 0], [50, 0, 0]])
    for name in ("interpolation", "interpolation2", "interpolation_v2"):
        if name == "interpolation_v2" and module is pointops:
            continue
        found = getattr(module, name)(cloud, middle, FEAT, ends(2, 1), ends(1, 1))
        assert torch.allclose(found, torch.tensor([[2.0], [100.0]]))
    groups = module.queryandgroup(3, cloud, middle, FEAT, None, ends(2, 1), ends(1, 1))
    assert groups.tolist() == [
        [[-1.0, 0, 0, 1], [1, 0, 0, 3], [0, 0, 0, 0]],
        [[0.0, 0, 0, 100], [0, 0, 0, 0], [0, 0, 0, 0]],
    ]


def test_grouping_of_both_generations() -> None:
    index = torch.tensor([[2, 0]])
    wanted = [[[100.0], [1.0]]]
    assert pointops.grouping(index, FEAT, torch.zeros(3, 3)).tolist() == wanted
    for run in (pointops.grouping, pointops.grouping2, pointops2.grouping):
        assert run(FEAT, index).tolist() == wanted


def test_the_most_pairs_of_a_query_are_not_read() -> None:
    draw = torch.Generator().manual_seed(0)
    query, key = torch.rand(2, 2, 1, 4, generator=draw)
    tables = torch.rand(2, 3, 1, 4, 3, generator=draw)
    pairs = 2000  # of one query; the peer takes 1,024
    bounds, index = torch.tensor([0, pairs, pairs]).int(), torch.arange(pairs).int() % 2
    where = torch.zeros(pairs, 3).int()
    steps = (
        lambda most: pointops2.attention_step1_v2(query, key, index, bounds, most),
        lambda most: pointops2.dot_prod_with_idx_v3(
            query, bounds, most, key, index, *tables, where
        ),
        lambda most: pointops2.attention_step2_with_rel_pos_value_v2(
            torch.ones(pairs, 1), key, bounds, most, index, tables[0], where
        ),
    )
    assert torch.allclose(steps[0](pairs)[:2, 0], (query[0] * key).sum((1, 2)))
    for step in steps:
        assert torch.equal(step(1), step(pairs))


# ---------------------------------------------------------------------------------- mps_pointops


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_points_of_any_floating_dtype(dtype: torch.dtype) -> None:
    cloud = CROSS[None].to(dtype)
    steps: tuple[Callable[[torch.Tensor], Any], ...] = (
        lambda points: mps_pointops.knn(points[:, 3:4], points, 5)[1].tolist(),
        lambda points: mps_pointops.three_nn(points[:, 3:4], points)[1].tolist(),
        lambda points: mps_pointops.ball_query(points[:, 3:4], points, 0.5, 2)[1].tolist(),
        lambda points: mps_pointops.furthest_point_sample(points, 2).tolist(),
    )
    wanted = ([[BY_DISTANCE]], [[BY_DISTANCE[:3]]], [[[3, -1]]], [[0, 1]])
    for step, result in zip(steps, wanted, strict=True):
        assert step(cloud) == result
        with pytest.raises(ValueError, match="must be finite"):
            step(cloud * NAN)


def test_an_index_of_any_size() -> None:
    index = mps_pointops.SpatialIndex(LINE)
    plain = index.knn(LINE[:2], 1024)
    assert plain[1][0].tolist() == list(range(1024))
    assert index.ball_query(LINE[:1], 5000.0, 3000)[1][0].tolist() == list(range(3000))
    other = mps_pointops.SpatialIndex(LINE, origin=torch.ones(3), cell_size=7.0)
    for found in (other.knn(LINE[:2], 1024), index.knn(LINE[:2], 1024, parallel_microtrees=True)):
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))


def test_flat_clouds_of_any_number_of_coordinates() -> None:
    corners = torch.tensor([[0.0, 0, 0, 0, 0], [0, 0, 0, 0, 3], [0, 0, 0, 0, 1]])
    assert flat.fps(corners, ratio=0.6, random_start=False).tolist() == [0, 1]
    assert flat.radius(corners, corners[:1], 2.0)[1].tolist() == [0, 2]
    assert flat.radius(corners, corners[:1], 2.0, ignore_same_index=True)[1].tolist() == [2]
    assert flat.radius_graph(corners, 2.0, max_num_neighbors=1).tolist() == [[2, 0], [0, 2]]
    assert flat.knn(corners[1:] - 2, corners[1:2], 1, cosine=True)[1].tolist() == [0]
    heap = flat.knn_graph(torch.zeros(6, 3), 2)  # of the last its own loop is not among three
    assert heap[1].bincount().tolist() == [2] * 6
    assert not (heap[0] == heap[1]).any()


def test_whole_operators_and_not_subsets() -> None:
    assert grid.grid_cluster(torch.tensor([[0, 9], [7, 3]]), 5).tolist() == [2, 1]
    assert grid.grid_cluster(torch.zeros(0, 3), 1.0).tolist() == []
    row, col = torch.tensor([0, 0, 1, 2]).int(), torch.tensor([1, 2, 0, 0]).int()
    weight = torch.tensor([1, 9, 1, 9])
    torch.manual_seed(0)
    assert graclus.graclus_cluster(row[:0], col[:0]).tolist() == []
    found = {tuple(graclus.graclus_cluster(row, col, weight).tolist()) for _ in range(20)}
    assert found == {(0, 1, 0), (0, 0, 2)}  # node 1 may come first, and has one neighbour
    path = torch.cat([torch.arange(49), torch.arange(1, 50)]).int()
    back = torch.cat([torch.arange(1, 50), torch.arange(49)]).int()
    walks = random_walk.random_walk(path, back, torch.full((40,), 25), 12, 1e3, 1.0)
    assert (walks[:, 2:] == walks[:, :-2]).float().mean() < 0.05  # there one half


REGISTER = """
import torch
library = torch.library.Library("pyg", "DEF")
NAMES = ["fps", "knn", "radius", "nearest", "grid_cluster", "graclus_cluster", "random_walk"]
for name in NAMES:
    library.define(f"{name}(Tensor x) -> Tensor")
from sparse3d.compat.mps_pointops.pyg import register_mps
assert sorted(register_mps()) == sorted(NAMES), "seven operators"
assert register_mps() == [], "once"
"""


def test_seven_operators_are_registered_for_apple_gpus() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", REGISTER], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
