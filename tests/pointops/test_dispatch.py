"""Every call has a kernel, any thread count gives the same bytes, tracing needs no values."""

from __future__ import annotations

import pytest
import torch
from point_oracle import make_cloud

import sparse3d
from sparse3d import _registry, pointops
from sparse3d.pointops import flat
from sparse3d.pointops.ball_query import ball_search
from sparse3d.pointops.fps import fps_sample
from sparse3d.pointops.group import gather_columns
from sparse3d.pointops.interpolate import interpolate_columns
from sparse3d.pointops.knn import knn_search


def _every(cloud: torch.Tensor) -> list[torch.Tensor]:
    """One result of every dense and flat operator."""
    batch = cloud[None]
    features = torch.linspace(0, 1, 2 * len(cloud)).view(1, 2, -1).to(cloud.dtype)
    distance, three = pointops.three_nn(batch[:, :50], batch)
    weights = (1 / (distance + 1e-8)).to(cloud.dtype)
    return [
        pointops.furthest_point_sample(batch, 40),
        *pointops.knn(batch, batch, 9),
        *pointops.ball_query(batch, batch, 0.4, 7),
        pointops.group(features, three),
        pointops.three_interpolate(features, three, weights),
        flat.knn_graph(cloud, 4),
        flat.radius(cloud, cloud, 0.3),
        flat.fps(cloud, random_start=False, ratio=0.05),
        pointops.chamfer_distance(batch, batch + 1)[0],
        *pointops.SpatialIndex(cloud.float()).knn(cloud.float()[:20], 3),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_no_call_falls_back_on_the_cpu(dtype: torch.dtype) -> None:
    reason = _registry.load("cpu")
    if reason is not None:
        pytest.skip(f"cpu: {reason}")
    with sparse3d.strict():
        _every(make_cloud("uniform", 1500).to(dtype))


@pytest.mark.usefixtures("cpu_library")
def test_thread_counts_and_instruction_sets_give_the_same_bytes(shape: str) -> None:
    from sparse3d.cpu import _library as library

    cloud = make_cloud(shape, 2500)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(_every(cloud))
        for path in library.paths():
            with library.use_path(path):
                results.append(_every(cloud))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_operators_pass_opcheck() -> None:
    cloud, none = torch.rand(20, 3), torch.empty(0, dtype=torch.uint8)
    table = torch.tensor([[0, 20, 0, 20, 0]])
    for op, args in (
        (knn_search, (cloud, cloud, table, none, 3, "squared")),
        (ball_search, (cloud, cloud, table, none, 0.1, 4, False)),
        (fps_sample, (cloud, torch.tensor([[0, 20, 0, 5, 0, 0]]), 5, False, False, 0, "auto")),
        (gather_columns, (torch.rand(2, 3, 9), torch.randint(0, 9, (2, 4)))),
        (
            interpolate_columns,
            (torch.rand(1, 3, 9), torch.zeros(1, 2, 3).long(), torch.rand(1, 2, 3)),
        ),
    ):
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(op.overload, args, test_utils=tests)


def test_a_network_of_point_operators_compiles_to_one_graph() -> None:
    def net(xyz: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        centres = pointops.gather(xyz.transpose(1, 2), pointops.furthest_point_sample(xyz, 8))
        _, index = pointops.knn(centres.transpose(1, 2), xyz, 4)
        return pointops.group(features, index).amax(3)

    xyz, features = torch.rand(2, 40, 3), torch.rand(2, 5, 40)
    traced = torch.compile(net, fullgraph=True, backend="aot_eager")
    assert torch.equal(traced(xyz, features), net(xyz, features))


X, IDS = torch.linspace(-1, 1, 24).view(8, 3), torch.tensor([0, 0, 1, 1, 1, 3, 3, 3])
COMPILED = {
    "scatter_sum": lambda x, ids: pointops.scatter_sum(x, ids, 0),
    "scatter_max": lambda x, ids: pointops.scatter_max(x, ids, 0)[0],
    "scatter_softmax": lambda x, ids: pointops.scatter_softmax(x, ids, 0),
    "scatter_mul": lambda x, ids: pointops.scatter_mul(x, ids, 0),
    "segment_coo": lambda x, ids: pointops.segments.segment_coo(x, ids, reduce="mean")[0],
    "knn": lambda x, ids: flat.knn(x, x, 2, ids, ids),
    "radius_graph": lambda x, ids: flat.radius_graph(x, 0.9, ids),
    "fps": lambda x, ids: flat.fps(x, ids, 0.5, random_start=False),
    "batch2offset": lambda x, ids: pointops.pointcept.batch2offset(ids),
}


@pytest.mark.parametrize("name", COMPILED)
def test_sizes_that_lie_in_values_are_found_when_compiled(name: str) -> None:
    """The number of segments or clouds is the largest id + 1, there too."""
    torch._dynamo.reset()
    run = COMPILED[name]
    assert torch.equal(torch.compile(run, backend="eager")(X, IDS), run(X, IDS))


def test_ids_without_values_need_a_stated_size() -> None:
    src, ids = torch.empty(4, 2, device="meta"), torch.empty(4, dtype=torch.int64, device="meta")
    with pytest.raises(ValueError, match=r"index must be a tensor with values.*pass dim_size"):
        pointops.scatter_sum(src, ids, 0)
    with pytest.raises(ValueError, match=r"batch_x must be a tensor with values.*pass batch_size"):
        flat.knn(src, src, 1, ids, ids)
