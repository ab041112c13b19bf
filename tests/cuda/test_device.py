"""Tensors that live on an NVIDIA GPU: results, streams, threads, devices, graphs, sizes beyond
2^31."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from contract.engine import same_bytes
from cuda_tensors import HOST
from point_oracle import RADII, make_cloud
from tolerance import GRADIENT, assert_close, assert_same

from sparse3d import _registry, pointops
from sparse3d._cases.samples import EMPTY, SMALL, WIDE, Size, engine_ops, samples
from sparse3d._registry import Op
from sparse3d.geometry import Geometry
from sparse3d.kernel_map import Coordinates
from sparse3d.metal import _sort
from sparse3d.ops.coordinates import build_table, lookup
from sparse3d.ops.norm import batch_norm_train

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("gpu")]

DOWN = Geometry((2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1))
OPS = engine_ops()
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def to_gpu(op: Op, args: Any) -> list[Any]:
    """Arguments on the GPU, but those that lie on the CPU by contract; tables are made anew, since
    backends have layouts of their own."""
    names = [argument.name for argument in op.overload._schema.arguments]
    moved = [
        a.cuda() if isinstance(a, torch.Tensor) and n not in HOST else a
        for n, a in zip(names, args, strict=True)
    ]
    if "table" in names:
        with _registry.force("cuda"):
            moved[names.index("table")] = build_table(moved[names.index("coords")])
    return moved


@pytest.mark.parametrize(
    "rows", [0, 1, 31, 32, 33, 511, 512, 513, 65536, 65537, 300_000, 3_000_000]
)
@pytest.mark.parametrize("bits", [1, 8, 9, 27, 31])
@pytest.mark.parametrize("distinct", [1, 3, 2**31])
def test_sort_is_stable(rows: int, bits: int, distinct: int) -> None:
    keys = (torch.randint(0, 2**bits, (rows,), device="cuda") % distinct).int()
    expected = torch.sort(keys, stable=True)
    ordered, places = _sort.sort(keys, bits)
    assert torch.equal(ordered, expected.values)
    assert torch.equal(places.long(), expected.indices)


def cloud(rows: int, seed: int = 0, batches: int = 2) -> torch.Tensor:
    """Distinct voxels, about five neighbours each, batches mixed."""
    draw = torch.Generator().manual_seed(seed)
    side = max(2, round((2.5 * rows) ** (1 / 3)))
    cells = torch.cartesian_prod(torch.arange(batches), *[torch.arange(side)] * 3).int()
    return cells[torch.randperm(len(cells), generator=draw)[:rows]].contiguous()


def compare(op: Op, size: Size, dtype: torch.dtype) -> None:
    with _registry.force("reference"):
        calls = samples(op, size, dtype)
        wanted = [op(*args) for args in calls]
    with _registry.strict():
        for args, expected in zip(calls, wanted, strict=True):
            got = op(*to_gpu(op, args))
            single = isinstance(got, torch.Tensor)
            results = ((got, expected),) if single else zip(got, expected, strict=True)
            for mine, theirs in results:
                if theirs.is_floating_point():
                    assert_close(mine, theirs, dtype, GRADIENT, op.name)
                elif op.name not in ("coordinate_table", "pool_max", "segment_max"):
                    assert_same(mine, theirs, op.name)
            again = op(*to_gpu(op, args))
            if op.name != "coordinate_table":  # whose slots are taken in the order of threads
                assert same_bytes(got, again), op.name


# Sorts, counts and linear layers are torch's own on CUDA.
BY_TORCH = {"id_counts", "key_order", "linear_rows", "linear_weight_grad", "running_sums"}
LAUNCHED = [n for n in OPS if n not in BY_TORCH and not n.startswith("conv")]


@pytest.mark.parametrize("name", LAUNCHED)
@pytest.mark.parametrize("size", [EMPTY, SMALL, WIDE], ids=lambda s: s.name)
def test_ops_equal_the_reference(name: str, size: Size) -> None:
    """Twice the same bytes, too."""
    for dtype in DTYPES:
        compare(OPS[name], size, dtype)


@pytest.mark.parametrize("rows", [0, 1, 31, 32, 33, 255, 256, 257, 1025, 20_000])
def test_maps_equal_the_reference(rows: int) -> None:
    coords = cloud(rows, rows)
    with _registry.force("reference"):
        expected = maps(coords)
    with _registry.strict():
        for ours, theirs in zip(maps(coords.cuda()), expected, strict=True):
            assert_same(ours, theirs)


def maps(coords: torch.Tensor) -> list[torch.Tensor]:
    sites = Coordinates(coords, None, 2)
    down, coarse = sites.floor(DOWN, None)
    found = [sites.submanifold([3, 3, 3], [1, 1, 1]), down, sites.footprint(DOWN, None)[0]]
    found.append(sites.given(coarse, Geometry((3,) * 3, (2,) * 3, (1,) * 3, (1,) * 3)))
    return [t for m in found for t in (m.src, m.dst, m.splits, m.out_indices)]


@pytest.mark.parametrize("shape", ["lattice", "clustered", "uniform"])
def test_point_operators_equal_the_reference(shape: str) -> None:
    points, few = make_cloud(shape, 3000)[None], make_cloud(shape, 200, 1)[None]

    def run(points: torch.Tensor, few: torch.Tensor) -> list[torch.Tensor]:
        taken = pointops.furthest_point_sample(points, 128)
        near = pointops.knn(few, points, 40)
        ball = pointops.ball_query(few, points, 0.5, 16)
        return [taken, *near, *ball]

    with _registry.force("reference"):
        expected = run(points, few)
    with _registry.strict():
        got = run(points.cuda(), few.cuda())
    for mine, theirs in zip(got, expected, strict=True):
        assert torch.equal(mine.cpu(), theirs)


@pytest.mark.parametrize("shape", ["uniform", "lattice", "clustered", "lidar"])
def test_indexed_searches_equal_scans(shape: str) -> None:
    """Enough points for several rounds of outer boxes; a wide ball, and one that few points hit."""
    cloud = make_cloud(shape, 70_000).cuda()
    query = torch.cat([cloud[::500], make_cloud(shape, 100, 1).cuda(), cloud[:1] + 1e4])
    index = pointops.SpatialIndex(cloud)
    for k in (1, 16, 100):
        near = [index.knn(query, k, backend=how) for how in ("bvh", "scan")]
        balls = [
            index.ball_query(query, RADII[shape] * scale, k, backend=how)
            for scale in (0.02, 1.0)
            for how in ("bvh", "scan")
        ]
        for one, two in (near, balls[:2], balls[2:]):
            assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    cloud_alone = cloud[None, :20_000]
    with _registry.strict():  # enough pairs to build an index without being asked
        distance, rows = pointops.knn(cloud_alone, cloud_alone, 4)
    again = pointops.SpatialIndex(cloud[:20_000], backend="scan").knn(cloud[:20_000], 4)
    assert torch.equal(distance[0], again[0])
    assert torch.equal(rows[0], again[1])


def test_sampling_with_many_groups_equals_one_group() -> None:
    from sparse3d.pointops.fps import fps_sample

    points = make_cloud("uniform", 9000).cuda()
    clouds = torch.tensor([[0, 9000, 0, 300, 0, 0]])
    taken = [fps_sample(points, clouds, 300, True, False, 0, s) for s in ("single", "multigroup")]
    assert torch.equal(*taken)


@pytest.fixture
def metal_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Metal convolution as the CUDA one: not what the backend uses, but the same seam."""
    from sparse3d.metal import conv  # noqa: F401

    for name, op in OPS.items():
        if name.startswith("conv"):
            monkeypatch.setitem(op.kernels, "cuda", op.kernels["metal"])


@pytest.mark.usefixtures("metal_convolution")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [EMPTY, SMALL, WIDE], ids=lambda s: s.name)
def test_the_metal_convolution_equals_the_reference(size: Size, dtype: torch.dtype) -> None:
    """The kernels that Apple GPUs run, witnessed by another vendor's threads."""
    with _registry.force("reference"):
        for name in ("conv_forward", "conv_input_grad", "conv_weight_grad", "conv_fused"):
            for args in samples(OPS[name], size, dtype):
                bare = [[] if isinstance(a, list) else a for a in args]
                expected = OPS[name](*bare)
                with _registry.force("cuda"), _registry.strict():
                    got = OPS[name](*to_gpu(OPS[name], bare))
                assert_close(got, expected, dtype, GRADIENT, name)


def test_work_runs_on_the_current_stream() -> None:
    """The coordinates arrive late, on a stream of their own."""
    source, stream = cloud(5000).cuda(), torch.cuda.Stream()
    late = torch.zeros_like(source)
    wanted = maps(source)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(source, non_blocking=True)
        table = build_table(late)
        rows = lookup(late, table, late)
        got = maps(late)
    stream.synchronize()
    assert torch.equal(rows.cpu(), torch.arange(5000, dtype=torch.int32))
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(got, wanted, strict=True))


def test_threads_do_not_mix_their_arguments() -> None:
    clouds = [cloud(400 + 50 * i, i).cuda() for i in range(8)]
    wanted = [maps(c) for c in clouds]
    torch.cuda.synchronize()
    faults: list[object] = []

    def work(i: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    got = maps(clouds[i])
                    if not all(torch.equal(a, b) for a, b in zip(got, wanted[i], strict=True)):
                        faults.append(i)
        except Exception as error:  # a thread's exception would be lost
            faults.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_gradients_from_the_thread_of_autograd() -> None:
    x = torch.randn(700, 8, device="cuda", requires_grad=True)
    out, _, _ = batch_norm_train(x, None, None, 1e-5)
    (out**3).sum().backward()
    y = x.detach().double().requires_grad_()
    normal = (y - y.mean(0)) / (y.var(0, unbiased=False) + 1e-5).sqrt()
    (normal**3).sum().backward()
    assert_close(x.grad, y.grad, torch.float32, GRADIENT)


def test_other_devices_have_kernels_of_their_own() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    coords = cloud(3000)
    wanted = maps(coords.cuda(0))
    assert torch.cuda.current_device() == 0
    got = maps(coords.cuda(1))
    assert torch.cuda.current_device() == 0
    assert got[0].device.index == 1
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(got, wanted, strict=True))


def test_tensors_of_two_devices_are_refused() -> None:
    from sparse3d.metal import _shader

    coords = cloud(40).cuda()
    with pytest.raises(TypeError, match="tensors must be on cuda:0, got cpu"):
        _shader.each(
            _shader.library("coordinates", SP_COLS=4),
            "sp_table_insert",
            *(coords, torch.full((128,), -1, dtype=torch.int32), 40, 127),
            threads=40,
        )


def test_feature_kernels_are_captured_in_a_graph() -> None:
    x = torch.randn(3000, 16, device="cuda")
    weight, bias = torch.rand(16, device="cuda"), torch.rand(16, device="cuda")
    batch_norm_train(x, weight, bias, 1e-5)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = batch_norm_train(x, weight, bias, 1e-5)[0]
    x.copy_(torch.randn(3000, 16) * 5 + 2)
    graph.replay()
    assert torch.equal(out, batch_norm_train(x, weight, bias, 1e-5)[0])


def test_float64_runs_the_reference() -> None:
    x = torch.randn(300, 4, dtype=torch.float64, device="cuda")
    out, mean, _ = batch_norm_train(x, None, None, 1e-5)
    assert out.dtype == mean.dtype == torch.float64
    with _registry.strict(), pytest.raises(RuntimeError, match="cuda kernel"):
        batch_norm_train(x, None, None, 1e-5)


@pytest.mark.slow
def test_twenty_million_voxels() -> None:
    """A full box: every neighbour is known."""
    side = 272
    axis = torch.arange(side, dtype=torch.int32, device="cuda")
    cells = torch.cartesian_prod(axis, axis, axis)
    coords = torch.cat([cells.new_zeros(len(cells), 1), cells], 1)
    assert len(coords) > 20_000_000
    pairs = Coordinates(coords, None, 1).submanifold([3, 3, 3], [1, 1, 1])
    counts = pairs.splits.diff().reshape(3, 3, 3)
    reach = torch.tensor([side - 1, side, side - 1])
    assert torch.equal(counts, torch.einsum("i,j,k->ijk", reach, reach, reach))
    step = torch.tensor([-1, -1, -1], device="cuda")
    first = slice(0, int(pairs.splits[1]))
    moved = coords[pairs.dst[first].long(), 1:] + step
    assert torch.equal(coords[pairs.src[first].long(), 1:].long(), moved.long())


@pytest.mark.slow
def test_more_than_two_to_the_31_elements() -> None:
    rows, channels = 17_000_000, 128
    x = torch.full((rows, channels), 3.0, dtype=torch.bfloat16, device="cuda")
    x[rows // 2 :] = 5.0
    assert x.numel() > 2**31
    out, mean, var = batch_norm_train(x, None, None, 0.0)
    assert (mean == 4).all()
    assert (var == 1).all()
    assert (out[: rows // 2] == -1).all()
    assert (out[rows // 2 :] == 1).all()
