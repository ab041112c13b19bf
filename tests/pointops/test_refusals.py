"""Every operator on points refuses every kind of bad input it can be given: one ValueError that
names the argument, word for word the same on every backend.

`OPERATORS` says how each one is called and which argument plays which part, `KINDS` how an argument
of that part is spoilt and what is said then. `test_every_operator_is_here` keeps the table whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from sparse3d import _registry, pointops
from sparse3d.pointops import flat, padded, pointcept, shell, voxel

NAN, INF = float("nan"), float("inf")
CLOUD = torch.rand(2, 6, 3, generator=torch.Generator().manual_seed(3))
ROWS = CLOUD.reshape(-1, 3)
BATCH = torch.tensor([0] * 6 + [1] * 6)
ENDS = torch.tensor([6, 12])
PICK = torch.zeros(2, 4, 3, dtype=torch.int64)
NEAR = torch.zeros(12, 2, dtype=torch.int64)
LENGTHS = torch.tensor([6, 3])


@dataclass(frozen=True)
class Operator:
    """A call that works and the parts of its arguments.

    points: finite, of any number of rows. cloud: those of which each cloud needs one. pair: what
    must be alike in device and dtype. placed: what must lie on one device with the points. peer:
    what no points give, where a peer's rule is kept.
    """

    run: Callable[..., Any]
    given: dict[str, Any]
    points: tuple[str, ...] = ()
    cloud: tuple[str, ...] = ()
    pair: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()
    radius: tuple[str, ...] = ()
    k: tuple[tuple[str, int], ...] = ()
    negative: tuple[str, ...] = ()
    sorted: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    peer: str = ""


def _index(kind: str) -> Callable[..., Any]:
    def run(points: torch.Tensor, query: torch.Tensor, **options: Any) -> Any:
        return getattr(pointops.SpatialIndex(points), kind)(query, **options)

    return run


def _two(**more: Any) -> dict[str, Any]:
    return {"query": CLOUD[:, :4], "ref": CLOUD, **more}


def _flat(**more: Any) -> dict[str, Any]:
    return {"x": ROWS, "y": ROWS[:8], "batch_x": BATCH, "batch_y": BATCH[:8], **more}


SIDES = ("batch_x", "batch_y")
EDGES = "no edges"
OPERATORS = {
    "furthest_point_sample": Operator(
        pointops.furthest_point_sample, {"xyz": CLOUD, "npoint": 3},
        points=("xyz",), cloud=("xyz",), negative=("npoint",),
    ),
    "knn": Operator(
        pointops.knn, _two(k=2), points=("query", "ref"), cloud=("ref",), pair=("query", "ref"),
        k=(("k", 6),), negative=("k",),
    ),
    "ball_query": Operator(
        pointops.ball_query, _two(radius=0.5, K=9), points=("query", "ref"), cloud=("ref",),
        pair=("query", "ref"), radius=("radius",), negative=("K",),
    ),
    "ball_query nearest": Operator(
        pointops.ball_query, _two(radius=0.5, K=2, nearest=True), points=("query", "ref"),
        cloud=("ref",), pair=("query", "ref"), radius=("radius",), negative=("K",),
    ),
    "three_nn": Operator(
        pointops.three_nn, {"unknown": CLOUD[:, :4], "known": CLOUD}, points=("unknown", "known"),
        cloud=("known",), pair=("unknown", "known"),
    ),
    "three_nn pad": Operator(
        pointops.three_nn, {"unknown": CLOUD, "known": CLOUD[:, :2], "pad": True},
        points=("unknown", "known"), cloud=("known",), pair=("unknown", "known"),
    ),
    "three_interpolate": Operator(
        pointops.three_interpolate,
        {"features": CLOUD, "indices": PICK, "weights": torch.ones(2, 4, 3)},
        pair=("features", "weights"), placed=("indices",),
    ),
    "gather": Operator(pointops.gather, {"features": CLOUD, "idx": PICK[..., 0]}, placed=("idx",)),
    "group": Operator(pointops.group, {"features": CLOUD, "idx": PICK}, placed=("idx",)),
    "group_offsets": Operator(
        pointops.group_offsets, {"xyz": CLOUD, "centres": CLOUD[:, :4], "idx": PICK},
        pair=("xyz", "centres"), placed=("idx",),
    ),
    "chamfer_distance": Operator(
        pointops.chamfer_distance,
        {"x": CLOUD, "y": CLOUD, "x_lengths": LENGTHS, "y_lengths": LENGTHS},
        points=("x", "y"), cloud=("x", "y"), pair=("x", "y"), lengths=("x_lengths", "y_lengths"),
    ),
    "chamfer_distance normals": Operator(
        pointops.chamfer_distance,
        {"x": CLOUD, "y": CLOUD, "x_normals": CLOUD, "y_normals": CLOUD, "weights": torch.ones(2)},
        points=("x_normals", "y_normals"), pair=("x", "x_normals"), placed=("weights",),
    ),
    "sinkhorn": Operator(
        pointops.sinkhorn, {"x": CLOUD, "y": CLOUD, "iterations": 2}, points=("x", "y"),
        cloud=("x", "y"), pair=("x", "y"),
    ),
    "SpatialIndex.knn": Operator(
        _index("knn"), {"points": ROWS, "query": ROWS[:4], "k": 2}, points=("points", "query"),
        cloud=("points",), pair=("query", "points"), k=(("k", 12),), negative=("k",),
    ),
    "SpatialIndex.ball_query": Operator(
        _index("ball_query"), {"points": ROWS, "query": ROWS[:4], "radius": 0.5, "K": 2},
        points=("points", "query"), cloud=("points",), pair=("query", "points"),
        radius=("radius",), negative=("K",),
    ),
    "flat.fps": Operator(
        flat.fps, {"x": ROWS, "batch": BATCH, "random_start": False}, points=("x",),
        sorted=("batch",), placed=("batch",), peer="no indices",
    ),
    "flat.knn": Operator(
        flat.knn, _flat(k=99), points=("x", "y"), pair=("x", "y"), negative=("k",), sorted=SIDES,
        placed=SIDES, peer=EDGES,
    ),
    "flat.knn cosine": Operator(
        flat.knn, _flat(k=2, cosine=True), points=("x", "y"), pair=("x", "y"), sorted=SIDES,
        peer=EDGES,
    ),
    "flat.radius": Operator(
        flat.radius, _flat(r=0.5), points=("x", "y"), pair=("x", "y"), radius=("r",), sorted=SIDES,
        placed=SIDES, peer=EDGES,
    ),
    "flat.knn_graph": Operator(
        flat.knn_graph, {"x": ROWS, "k": 99, "batch": BATCH}, points=("x",), negative=("k",),
        sorted=("batch",), placed=("batch",), peer=EDGES,
    ),
    "flat.radius_graph": Operator(
        flat.radius_graph, {"x": ROWS, "r": 0.5, "batch": BATCH}, points=("x",), radius=("r",),
        sorted=("batch",), placed=("batch",), peer=EDGES,
    ),
    "flat.nearest": Operator(
        flat.nearest, _flat(), points=("x", "y"), pair=("x", "y"), sorted=SIDES, placed=SIDES,
    ),
    "padded.knn_points": Operator(
        padded.knn_points,
        {"p1": CLOUD, "p2": CLOUD, "lengths1": LENGTHS, "lengths2": LENGTHS, "K": 9},
        points=("p1", "p2"), pair=("p1", "p2"), lengths=("lengths1", "lengths2"), peer="zeros",
    ),
    "padded.ball_query": Operator(
        padded.ball_query, {"p1": CLOUD, "p2": CLOUD, "lengths1": LENGTHS, "lengths2": LENGTHS},
        points=("p1", "p2"), pair=("p1", "p2"), radius=("radius",), negative=("K",),
        lengths=("lengths1", "lengths2"), peer="-1",
    ),
    "padded.sample_farthest_points": Operator(
        padded.sample_farthest_points, {"points": CLOUD, "lengths": LENGTHS, "K": 9},
        points=("points",), negative=("K",), lengths=("lengths",), peer="-1",
    ),
    "padded.knn_gather": Operator(
        padded.knn_gather, {"x": CLOUD, "idx": PICK, "lengths": LENGTHS}, placed=("idx",),
        lengths=("lengths",),
    ),
    "padded.masked_gather": Operator(
        padded.masked_gather, {"points": CLOUD, "idx": PICK}, placed=("idx",)
    ),
    "pointcept.farthest_point_sampling": Operator(
        pointcept.farthest_point_sampling,
        {"xyz": ROWS, "offset": ENDS, "new_offset": torch.tensor([2, 4])},
        points=("xyz",), placed=("offset", "new_offset"),
    ),
    "pointcept.knn_query": Operator(
        pointcept.knn_query,
        {"nsample": 9, "xyz": ROWS, "offset": ENDS, "new_xyz": ROWS, "new_offset": ENDS},
        points=("xyz", "new_xyz"), pair=("xyz", "new_xyz"), negative=("nsample",),
        placed=("offset", "new_offset"), peer="-1",
    ),
    "pointcept.knn_query_and_group": Operator(
        pointcept.knn_query_and_group,
        {"feat": ROWS, "xyz": ROWS, "offset": ENDS, "new_xyz": ROWS, "new_offset": ENDS,
         "nsample": 2},
        points=("xyz", "new_xyz"), pair=("xyz", "new_xyz"), placed=("feat", "offset"),
    ),
    "pointcept.grouping": Operator(
        pointcept.grouping, {"idx": NEAR, "feat": ROWS, "xyz": ROWS, "with_xyz": True},
        placed=("feat", "idx"),
    ),
    "pointcept.interpolation": Operator(
        pointcept.interpolation,
        {"xyz": ROWS, "new_xyz": ROWS, "feat": ROWS, "offset": ENDS, "new_offset": ENDS},
        points=("xyz", "new_xyz"), pair=("xyz", "new_xyz"), placed=("feat", "offset"),
    ),
    "pointcept.batch2offset": Operator(
        pointcept.batch2offset, {"batch": BATCH}, sorted=("batch",)
    ),
    "shell.shell_query": Operator(
        shell.shell_query,
        {"nsample": 2, "max_radius": 0.5, "min_radius": 0.0, "xyz": ROWS, "offset": ENDS,
         "new_xyz": ROWS, "new_offset": ENDS},
        points=("xyz", "new_xyz"), pair=("xyz", "new_xyz"), radius=("max_radius",),
        negative=("nsample",), placed=("offset", "new_offset"), peer="-1",
    ),
    "shell.random_shell_query": Operator(
        shell.random_shell_query,
        {"nsample": 2, "max_radius": 0.5, "min_radius": 0.0, "xyz": ROWS, "offset": ENDS},
        points=("xyz",), radius=("max_radius",), negative=("nsample",), placed=("offset",),
    ),
    "grid_cluster": Operator(
        pointops.grid_cluster, {"pos": ROWS, "size": 0.5}, points=("pos",), radius=("size",),
        peer="no ids",
    ),
    "voxel_grid": Operator(
        pointops.voxel_grid, {"pos": ROWS, "size": 0.5, "batch": BATCH}, points=("pos",),
        radius=("size",), placed=("batch",), peer="no ids",
    ),
    "voxel.voxelize": Operator(
        voxel.voxelize, {"pos": ROWS, "size": 0.5, "batch": BATCH}, points=("pos",),
        radius=("size",), sorted=("batch",), placed=("batch",), peer="no voxels",
    ),
    "voxel.voxel_downsample": Operator(
        voxel.voxel_downsample, {"pos": ROWS, "size": 0.5, "batch": BATCH, "features": ROWS},
        points=("pos",), radius=("size",), sorted=("batch",), placed=("batch", "features"),
        peer="no voxels",
    ),
}  # fmt: skip

NOT_OF_POINTS = {
    "graclus_cluster", "neighbor_sampler", "random_walk", "inverse_distance_weights",
    *(name for name in pointops.__all__ if name.startswith("scatter_")),
    "attention", "flat", "padded", "pointcept", "reference", "segments", "shell", "voxel",
    "SpatialIndex",
}  # fmt: skip
"""Of graphs, features and segments, whose bad input is in `test_bad_input`; and modules."""


def spoilt(cloud: torch.Tensor, value: float) -> torch.Tensor:
    broken = cloud.clone()
    broken[(0,) * (cloud.ndim - 2) + (1, 2)] = value
    return broken


def _values(op: Operator) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    finite = "must be finite, got 1 rows with NaN or infinity (first: row 1); drop them first"
    for name in op.points:
        for value in (NAN, INF, -INF):
            broken = {name: spoilt(op.given[name], value)}
            yield "not finite", f"{name} {value}", broken, f"{name} {finite}"
    for name in op.radius:
        for value in (0.0, -0.5, NAN, INF):
            got = f"[{value}, {value}, {value}]" if name == "size" else f"{value}"
            yield "radius", f"{value}", {name: value}, f"{name} must be finite and > 0, got {got}"
    for name, most in op.k:
        words = f"{name} must be in [0, {most}], got {most + 1}; "
        yield "k > N", name, {name: most + 1}, words
    for name in op.negative:
        yield "negative", name, {name: -1}, f"{name} must be "


def _clouds(op: Operator) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    for name in op.cloud:
        shape = [2, 0, 3] if op.given[name].ndim == 3 else [1, 0, 3]
        words = f"{name} must be of at least one point a cloud, got shape {shape}; leave empty"
        empty = {name: op.given[name][..., :0, :]}
        if "x_lengths" in op.given:
            empty |= {"x_lengths": None, "y_lengths": None}
        yield "empty", name, empty, words
    for name in op.sorted:
        words = f"{name} must be sorted, got a batch vector that decreases; sort the points by"
        yield "unsorted", name, {name: op.given[name].flip(0)}, words
    for name in op.lengths:
        for value in (7, -1):
            given = torch.tensor([6, value])
            words = f"{name} must be in [0, 6], the padded size, got {value}"
            yield "lengths", f"{name} {value}", {name: given}, words


def _mixed(op: Operator) -> Iterator[tuple[str, str, dict[str, Any], str]]:
    for name in (*op.pair, *op.placed):
        yield "device", name, {name: op.given[name].to("meta")}, "on "
    for name in op.pair:
        yield "dtype", name, {name: op.given[name].double()}, "float64"


CASES = [
    pytest.param(name, changed, words, id=f"{name}: {kind}, {how}")
    for name, op in OPERATORS.items()
    for part in (_values, _clouds, _mixed)
    for kind, how, changed, words in part(op)
]


def refusal(name: str, changed: dict[str, Any]) -> str:
    op = OPERATORS[name]
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the caller compares every word)
        op.run(**{**op.given, **changed})
    assert caught.type is ValueError
    return str(caught.value)


@pytest.mark.parametrize(("name", "changed", "words"), CASES)
def test_bad_input_is_refused(backend: str, name: str, changed: dict[str, Any], words: str) -> None:
    said = refusal(name, changed)
    assert words in said
    assert re.match(r"[A-Za-z_0-9 ]+ must be .+, got .+", said, re.DOTALL)
    with _registry.force("reference"):
        assert refusal(name, changed) == said


@pytest.mark.parametrize("name", OPERATORS)
def test_good_input_is_not(backend: str, name: str) -> None:
    op = OPERATORS[name]
    op.run(**op.given)


EMPTY = [name for name, op in OPERATORS.items() if op.peer]


@pytest.mark.parametrize("name", EMPTY)
def test_no_points_give_nothing_where_the_peer_says_so(backend: str, name: str) -> None:
    op = OPERATORS[name]
    axis = 1 if "padded" in name else 0
    few = dict(op.given)
    for key, value in op.given.items():
        if "offset" in key or key.startswith("lengths"):
            few[key] = torch.zeros_like(value)
        elif isinstance(value, torch.Tensor):
            few[key] = value.narrow(axis, 0, 0)
    found = op.run(**few)
    part = found[0] if isinstance(found, tuple) else found
    part = getattr(part, "voxels", part)
    part = getattr(part, "voxel_coords", part)
    assert part.numel() == 0 or (
        name == "padded.sample_farthest_points" and bool((part == -1).all())
    )


def test_every_operator_is_here() -> None:
    heads = {name.split()[0].split(".")[-1] for name in OPERATORS}
    public = [name for name in pointops.__all__ if name not in NOT_OF_POINTS]
    assert set(public) - heads == set()
    assert set(flat.__all__) - heads == set()
    assert {"SpatialIndex.knn", "SpatialIndex.ball_query"} <= OPERATORS.keys()
