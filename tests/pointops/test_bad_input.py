"""Bad input of operators and stand-ins: one clear error, the same words on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sparse3d import _registry
from sparse3d import pointops as ops
from sparse3d.compat import knn_cuda, pytorch3d, torch_cluster, torch_scatter
from sparse3d.compat import pointops as pointcept_ops
from sparse3d.compat.pointnet2_ops import pointnet2_utils as pointnet2
from sparse3d.pointops import flat, pointcept, voxel

CLOUD = torch.rand(1, 6, 3, generator=torch.Generator().manual_seed(0))
ROWS = CLOUD[0]
END = torch.tensor([6], dtype=torch.int32)
UNSORTED = torch.tensor([0, 1, 0, 1, 1, 1])
ZEROS = torch.zeros(6, dtype=torch.int64)
BROKEN = CLOUD.clone()
BROKEN[0, 2, 1] = float("nan")
NAN = float("nan")
PICK = torch.zeros(1, 2, 3, dtype=torch.int64)
tc = torch.ops.torch_cluster


def away(value: torch.Tensor) -> torch.Tensor:
    return value.to("meta")


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    # devices
    "chamfer normals": (
        lambda: ops.chamfer_distance(CLOUD, CLOUD, x_normals=CLOUD, y_normals=away(CLOUD)),
        "y_normals and the points must be on one device",
    ),
    "chamfer weights": (
        lambda: ops.chamfer_distance(CLOUD, CLOUD, weights=away(torch.ones(1))),
        "weights and x must be on one device",
    ),
    "sinkhorn weights": (
        lambda: ops.sinkhorn(CLOUD, CLOUD, x_weights=away(torch.ones(1, 6))),
        "x_weights and the points must be on one device",
    ),
    "voxel_grid batch": (
        lambda: ops.voxel_grid(ROWS, 1.0, away(ZEROS)),
        "batch and pos must be on one device",
    ),
    "grid size": (
        lambda: ops.grid_cluster(ROWS, away(torch.ones(3))),
        "size and pos must be on one device",
    ),
    "grid start": (
        lambda: ops.grid_cluster(ROWS, 1.0, away(torch.ones(3))),
        "start and pos must be on one device",
    ),
    "walk start": (
        lambda: ops.random_walk(ZEROS[:1], ZEROS[:1], away(ZEROS), 2),
        "row and start must be on one device",
    ),
    "grouping feat": (
        lambda: pointcept.grouping(PICK[0], away(ROWS), ROWS),
        "must be on one device",
    ),
    "grouping idx": (
        lambda: pointcept.grouping(away(PICK[0]), ROWS, ROWS),
        "must be on one device",
    ),
    "interpolation feat": (
        lambda: pointcept.interpolation(ROWS, ROWS, away(ROWS), END, END),
        "feat and xyz must be on one device",
    ),
    "fps ptr": (
        lambda: flat.fps(ROWS, ptr=away(torch.tensor([0, 6]))),
        "ptr must be on cpu as the points are, got meta",
    ),
    "fps ratio": (
        lambda: flat.fps(ROWS, ratio=away(torch.tensor(0.5))),
        "ratio and points must be on one device",
    ),
    "offset": (
        lambda: pointcept.knn_query(1, ROWS, away(END)),
        "offset must be on cpu as the points are, got meta",
    ),
    "new_offset": (
        lambda: pointcept.farthest_point_sampling(ROWS, END, away(END)),
        "new_offset must be on cpu as the points are, got meta",
    ),
    "knn_gather idx": (
        lambda: pytorch3d.ops.knn_gather(CLOUD, away(PICK)),
        "x and idx must be on one device",
    ),
    "masked_gather idx": (
        lambda: pytorch3d.ops.masked_gather(CLOUD, away(PICK)),
        "points and idx must be on one device",
    ),
    "torch_cluster knn": (
        lambda: tc.knn(ROWS, away(ROWS), None, None, 1, False, 1),
        "x and y must be on one device",
    ),
    "segment_csr indptr": (
        lambda: torch_scatter.segment_csr(ROWS, away(torch.tensor([0, 6]))),
        "indptr and src must be on one device",
    ),
    # bounds, batches and offsets
    "interpolation empty cloud": (
        lambda: pointcept.interpolation(
            ROWS[:2], ROWS[:3], ROWS[:2], torch.tensor([0, 2]), torch.tensor([1, 3])
        ),
        "offset must be of at least one point in every cloud of new_offset",
    ),
    "interpolation feat rows": (
        lambda: pointcept.interpolation(ROWS, ROWS, ROWS[:4], END, END),
        "feat must be of 6 rows as xyz has",
    ),
    "batch2offset": (lambda: pointcept.batch2offset(UNSORTED), "batch must be sorted"),
    "offset2batch": (
        lambda: pointcept.offset2batch(torch.tensor([5, 3])),
        "offset must be ascending and end at 3",
    ),
    "float offset": (
        lambda: pointcept.knn_query(1, ROWS, torch.tensor([5.7, 6.0])),
        "offset must be int64 or int32, got torch.float32",
    ),
    "float ptr": (
        lambda: flat.fps(ROWS, ptr=[0.0, 6.5]),  # type: ignore[list-item]
        "ptr must be int64 or int32, got torch.float32",
    ),
    "float new_offset": (
        lambda: pointcept.farthest_point_sampling(ROWS, END, torch.tensor([1.5])),
        "new_offset must be int64 or int32",
    ),
    "torch_cluster clouds": (
        lambda: tc.knn(ROWS, ROWS, torch.tensor([0, 6]), torch.tensor([0, 3, 6]), 1, False, 1),
        "ptr_y must be of 2 entries as ptr_x has, got 3",
    ),
    "torch_cluster one ptr": (
        lambda: tc.radius(ROWS, ROWS, torch.tensor([0, 3, 6]), None, 1.0, 4, 1),
        "ptr_y must be of 3 entries as ptr_x has, got 2",
    ),
    "torch_cluster graclus": (
        lambda: tc.graclus(torch.tensor([0, 3]), torch.tensor([5_000_000_000, 1, 2]), None),
        r"col must be in \[0, 1\), got 5000000000",
    ),
    "torch_cluster walk": (
        lambda: tc.random_walk(torch.tensor([0, 1]), ZEROS[:1], ZEROS[:1] + 9, 4, 1.0, 1.0),
        r"start must be in \[0, 1\), got 9",
    ),
    "torch_cluster unsorted": (
        lambda: torch_cluster.fps(ROWS, UNSORTED),
        "batch must be sorted",
    ),
    "segment_coo": (
        lambda: torch_scatter.segment_coo(ROWS[:, 0], UNSORTED),
        "index must be sorted along its last axis",
    ),
    "segment_csr": (
        lambda: torch_scatter.segment_csr(ROWS[:, 0], torch.tensor([0, 4, 2])),
        "indptr must be ascending along its last axis",
    ),
    "segment_csr range": (
        lambda: torch_scatter.segment_max_csr(ROWS[:, 0], torch.tensor([0, 7])),
        r"indptr must be in \[0, 6\], got 7",
    ),
    "gather_csr": (
        lambda: torch_scatter.gather_csr(ROWS[:2, 0], torch.tensor([0, 4, 2])),
        "indptr must be ascending along its last axis",
    ),
    "gather_coo": (
        lambda: torch_scatter.gather_coo(ROWS[:2, 0], UNSORTED + 1),
        r"index must be in \[0, 2\), got 2",
    ),
    "gather_coo device": (
        lambda: torch_scatter.gather_coo(ROWS[:2, 0], away(UNSORTED)),
        "src and index must be on one device",
    ),
    "scatter_mul": (
        lambda: torch_scatter.scatter_mul(ROWS[:, 0], UNSORTED - 1),
        "index must be >= 0, got -1",
    ),
    "scatter_mul size": (
        lambda: torch_scatter.scatter_mul(ROWS[:, 0], UNSORTED, dim_size=1),
        r"index must be in \[0, 1\), dim_size, got 1",
    ),
    "sampler start": (
        lambda: torch_cluster.neighbor_sampler(torch.tensor([2]), torch.tensor([0, 1, 2]), 1),
        r"start must be in \[0, 2\), got 2",
    ),
    "sampler rowptr": (
        lambda: torch_cluster.neighbor_sampler(ZEROS[:1], torch.tensor([0, 4, 2]), 1),
        "rowptr must be ascending, start at 0 and end at 2, the number of edges",
    ),
    "sampler size": (
        lambda: torch_cluster.neighbor_sampler(ZEROS[:1], torch.tensor([0, 2]), NAN),
        "size must be finite and > 0, got nan",
    ),
    "voxel_grid batch length": (
        lambda: ops.voxel_grid(ROWS, 1.0, ZEROS[:3]),
        "batch must be of 6 entries, one a point, got 3",
    ),
    "voxel_grid float batch": (
        lambda: ops.voxel_grid(ROWS, 1.0, ROWS[:, 0]),
        "batch must be int64 or int32",
    ),
    "fps ratios": (
        lambda: flat.fps(ROWS, ZEROS, torch.tensor([0.5, 0.5])),
        "ratio must be one number or 1, one a cloud",
    ),
    # lengths and indices
    "knn_gather lengths": (
        lambda: pytorch3d.ops.knn_gather(CLOUD, PICK, torch.tensor([7])),
        r"lengths must be in \[0, 6\], the padded size, got 7",
    ),
    "knn_gather index": (
        lambda: pytorch3d.ops.knn_gather(CLOUD, PICK + 9),
        r"idx must be in \[0, 6\), got 9",
    ),
    "masked_gather index": (
        lambda: pytorch3d.ops.masked_gather(CLOUD, PICK - 2),
        r"idx must be in \[-1, 6\), got -2",
    ),
    "grouping2": (
        lambda: pointcept_ops.grouping2(ROWS, PICK[0] + 6),
        r"idx must be in \[0, 6\), got 6",
    ),
    "subtraction": (
        lambda: pointcept_ops.subtraction(ROWS[:2], ROWS, PICK[0] + 6),
        r"idx must be in \[0, 6\), got 6",
    ),
    "aggregation": (
        lambda: pointcept_ops.aggregation(
            ROWS[:2], torch.zeros(2, 3, 3), torch.zeros(2, 3, 3), PICK[0] + 2
        ),
        r"idx must be in \[0, 2\), got 2",
    ),
    "attention index": (
        lambda: pointcept_ops.attention_relation_step(CLOUD, CLOUD, ROWS[0], ZEROS, UNSORTED),
        r"index_refer must be in \[0, 1\), got 1",
    ),
    "attention lengths": (
        lambda: pointcept_ops.attention_fusion_step(ROWS[:, :1], ROWS[:, None], ZEROS, ZEROS[:3]),
        "index_refer must be of 6 entries as index_target, got 3",
    ),
    "attention device": (
        lambda: pointcept_ops.attention_relation_step(CLOUD, CLOUD, ROWS[0], ZEROS, away(ZEROS)),
        "must be on one device",
    ),
    "knn_points lengths": (
        lambda: pytorch3d.ops.knn_points(CLOUD, CLOUD, lengths2=torch.tensor([7])),
        r"lengths2 must be in \[0, 6\]",
    ),
    "pointnet2 npoint": (
        lambda: pointnet2.furthest_point_sample(CLOUD, -1),
        "npoint must be >= 0, got -1",
    ),
    "pointnet2 nsample": (
        lambda: pointnet2.ball_query(1.0, -1, CLOUD, CLOUD),
        "K must be >= 0, got -1",
    ),
    "knn_cuda k": (
        lambda: knn_cuda.KNN(9, True)(CLOUD, CLOUD),
        r"k must be in \[0, 6\], got 9",
    ),
    # values
    "grid start nan": (
        lambda: ops.grid_cluster(ROWS, 1.0, NAN),
        "start must be finite, got",
    ),
    "grid end infinite": (
        lambda: ops.grid_cluster(ROWS, 1.0, 0.0, float("inf")),
        "end must be finite, got",
    ),
    "voxelize start nan": (
        lambda: voxel.voxelize(ROWS, 1.0, start=NAN),
        "start must be finite, got",
    ),
    "voxelize end nan": (
        lambda: voxel.voxelize(ROWS, 1.0, end=NAN),
        "end must be finite, got",
    ),
    "knn_points nan": (
        lambda: pytorch3d.ops.knn_points(BROKEN, CLOUD, lengths1=torch.tensor([3])),
        "p1 must be finite, got 1 rows with NaN or infinity",
    ),
    "sample nan": (
        lambda: pytorch3d.ops.sample_farthest_points(BROKEN, torch.tensor([3]), 2),
        "points must be finite, got 1 rows",
    ),
    "pointnet2 nan": (
        lambda: pointnet2.three_nn(CLOUD, BROKEN),
        "known must be finite, got 1 rows",
    ),
}


@pytest.mark.parametrize("broken", ["x", None, [0.5, "x"], [[0.5], [0.5, 0.5]], 1j])
def test_what_is_no_number_is_named(broken: Any) -> None:
    for call in (
        *((lambda: flat.fps(ROWS, ratio=broken),) if broken is not None else ()),
        lambda: ops.grid_cluster(ROWS, broken),
        lambda: ops.grid_cluster(ZEROS[:, None], broken),
        lambda: ops.voxel_grid(ROWS, broken),
        lambda: voxel.voxelize(ROWS, broken),
    ):
        with pytest.raises(TypeError, match=r"^(ratio|size) must be a number or several, got"):
            call()
    if broken is not None:
        with pytest.raises(TypeError, match=r"^ptr must be (a number or several|int64 or int32)"):
            flat.fps(ROWS, ptr=broken)


@pytest.mark.parametrize("name", CASES)
def test_one_clear_error(name: str) -> None:
    call, wanted = CASES[name]
    words = []
    compiled = _registry.load("cpu") is None
    for backend in ("reference", "cpu" if compiled else "reference"):
        with (
            _registry.force(backend),
            pytest.raises((ValueError, TypeError), match=wanted) as caught,
        ):
            call()
        words.append((caught.type, str(caught.value)))
    assert words[0] == words[1]


def test_padding_of_the_stand_ins_may_hold_anything(backend: str) -> None:
    short = torch.tensor([2])
    clean = torch.where(BROKEN.isnan(), 0, BROKEN)
    for run in (
        lambda cloud: pytorch3d.ops.knn_points(cloud, CLOUD, lengths1=short, K=2)[:2],
        lambda cloud: pytorch3d.ops.knn_points(CLOUD, cloud, lengths2=short, K=3)[:2],
        lambda cloud: pytorch3d.ops.ball_query(CLOUD, cloud, lengths2=short, K=3, radius=2.0),
        lambda cloud: pytorch3d.ops.sample_farthest_points(cloud, short, 3),
    ):
        for one, other in zip(run(BROKEN), run(clean), strict=True):
            assert torch.equal(one, other)
            assert not one.isnan().any()


def test_padding_of_normals_may_hold_anything(backend: str) -> None:
    normals = CLOUD.clone()
    normals[0, 2:] = NAN
    leaf = normals.requires_grad_()
    short = torch.tensor([2])
    loss = ops.chamfer_distance(CLOUD, CLOUD, short, short, leaf, leaf)[1]
    assert isinstance(loss, torch.Tensor)
    loss.backward()
    assert leaf.grad is not None
    assert bool(leaf.grad.isfinite().all())


def test_a_corner_for_every_axis(backend: str) -> None:
    corner = torch.tensor([0.0, -1.0, -2.0])
    cells = voxel.voxelize(torch.zeros(1, 3), 1.0, start=corner).voxel_coords
    assert cells.tolist() == [[0, 1, 2]]


def test_offsets_of_empty_clouds() -> None:
    assert pointcept.batch2offset(ZEROS[:0]).tolist() == []
    assert pointcept.offset2batch(ZEROS[:0]).tolist() == []
    assert pointcept.offset2batch(torch.tensor([0, 2])).tolist() == [1, 1]
