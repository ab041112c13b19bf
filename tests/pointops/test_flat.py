from __future__ import annotations

import itertools

import numpy as np
import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import flat

SIZES = torch.tensor([50, 0, 3, 120])
BATCH = torch.repeat_interleave(torch.arange(4), SIZES)
BOUNDS = [0, 50, 50, 53, 173]


def _cloud(shape: str, seed: int = 1) -> torch.Tensor:
    return make_cloud(shape, 173, seed)


def _by_hand(x: torch.Tensor, y: torch.Tensor, find: object) -> list[list[int]]:
    pairs: list[list[int]] = [[], []]
    for first, last in itertools.pairwise(BOUNDS):
        if last == first:
            continue
        for row, line in enumerate(find(y[first:last], x[first:last])):  # type: ignore[operator]
            kept = [int(i) for i in line if i >= 0]
            pairs[0] += [first + row] * len(kept)
            pairs[1] += [first + i for i in kept]
    return pairs


def test_knn(backend: str, shape: str) -> None:
    x, y = _cloud(shape, 1), _cloud(shape, 2)
    found = flat.knn(x, y, 5, BATCH, BATCH)
    wanted = _by_hand(x, y, lambda q, p: oracle.knn(q, p, min(5, len(p))))
    assert found.tolist() == wanted
    assert found.dtype == torch.int64


def test_knn_of_a_small_cloud_gives_fewer_edges(backend: str) -> None:
    x = make_cloud("uniform", 3)
    assert flat.knn(x, x, 10).shape == (2, 9)
    assert flat.knn(x[:0], x, 10).shape == (2, 0)


def test_radius(backend: str, shape: str) -> None:
    x, y = _cloud(shape, 1), _cloud(shape, 2)
    table = oracle.distances32(y[53:], x[53:])
    radius = float(np.sqrt(np.quantile(table, 0.1))) + 1e-3
    found = flat.radius(x, y, radius, BATCH, BATCH, 6)
    square = np.float32(radius * radius)

    def hits(q: torch.Tensor, p: torch.Tensor) -> list[list[int]]:
        return [np.flatnonzero(line)[:6].tolist() for line in oracle.distances32(q, p) < square]

    assert found.tolist() == _by_hand(x, y, hits)


def test_radius_squares_the_double(backend: str) -> None:
    """The point lies between fl32(r * r), which is compared with here, and the dense rule's
    fl32(fl32(r)^2), one bit above."""
    point = torch.tensor([[0.09999999403953552, 2.160400981665589e-05, 0.0]])
    origin = torch.zeros(1, 3)
    distance = oracle.distances32(origin, point)[0, 0]
    assert np.float32(0.1 * 0.1) <= distance < np.float32(0.1) * np.float32(0.1)
    assert flat.radius(point, origin, 0.1).shape == (2, 0)
    assert flat.radius(point * 0.999, origin, 0.1)[1].tolist() == [0]
    graph = flat.radius_graph(torch.cat([origin, point]), 0.1)
    assert graph.shape == (2, 0)


@pytest.mark.parametrize("radius", [1e-20, 1e-30])
def test_radius_squares_below_the_smallest_normal_are_refused(backend: str, radius: float) -> None:
    x = torch.zeros(1, 3)
    with pytest.raises(ValueError, match="r must be such that its square fits float32"):
        flat.radius(x, x, radius)
    assert flat.radius(x, x, 1.1e-19).tolist() == [[0], [0]]


def test_radius_in_chunks_is_the_same(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = _cloud("lattice")
    whole = flat.radius(x, x, 1.5, BATCH, BATCH, 20)
    monkeypatch.setattr(flat, "HITS_A_CHUNK", 20 * 31)
    assert torch.equal(flat.radius(x, x, 1.5, BATCH, BATCH, 20), whole)


def test_ignore_same_index(backend: str) -> None:
    x = _cloud("lattice")
    every = flat.radius(x, x, 1.5, BATCH, BATCH, 200)
    others = flat.radius(x, x, 1.5, BATCH, BATCH, 200, ignore_same_index=True)
    assert torch.equal(others, every[:, every[0] != every[1]])


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("loop", [False, True])
def test_graphs(backend: str, shape: str, flow: str, loop: bool) -> None:
    x = _cloud(shape)
    graph = flat.knn_graph(x, 4, BATCH, loop, flow)
    centre, neighbour = graph if flow == "target_to_source" else graph.flip(0)

    def nearest(q: torch.Tensor, p: torch.Tensor) -> list[list[int]]:
        lines = oracle.knn(q, p, len(p)).tolist()
        return [[i for i in line if loop or i != row][:4] for row, line in enumerate(lines)]

    assert [centre.tolist(), neighbour.tolist()] == _by_hand(x, x, nearest)
    graph = flat.radius_graph(x, 1.5, BATCH, loop, 4, flow)
    centre, neighbour = graph if flow == "target_to_source" else graph.flip(0)

    def within(q: torch.Tensor, p: torch.Tensor) -> list[list[int]]:
        lines = [np.flatnonzero(line) for line in oracle.distances32(q, p) < 2.25]
        return [[i for i in line if loop or i != row][:4] for row, line in enumerate(lines)]

    assert [centre.tolist(), neighbour.tolist()] == _by_hand(x, x, within)


def test_cosine(backend: str) -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 16, generator=draw), torch.randn(20, 16, generator=draw)
    found = flat.knn(x, y, 7, cosine=True)
    cosine = torch.nn.functional.cosine_similarity(y.double()[:, None], x.double()[None], dim=2)
    wanted = cosine.argsort(dim=1, descending=True)[:, :7]
    assert torch.equal(found[1].view(20, 7), wanted)
    # A zero row stays zero, at distance 1 from every direction.
    zeros = flat.knn(torch.zeros(2, 3), torch.ones(1, 3), 2, cosine=True)
    assert zeros.tolist() == [[0, 0], [0, 1]]
    mixed = torch.tensor([[0.0, 0, 0], [-1, -1, -1], [2, 2, 2]])
    assert flat.knn(mixed, torch.ones(1, 3), 3, cosine=True)[1].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("dtype", "powers"),
    [(torch.float32, (-42, -25, 0, 25, 38)), (torch.float64, (-300, -25, 0, 25, 300))],
)
def test_cosine_of_rows_of_any_magnitude(
    backend: str, dtype: torch.dtype, powers: tuple[int, ...]
) -> None:
    x = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]], dtype=dtype)
    for power in powers:
        scale = torch.tensor(10.0, dtype=torch.float64) ** power
        small = (x.double() * scale).to(dtype)
        for y, wanted in (((0, 1.0, 0), [1, 3]), ((0.5, 0.25, 0), [3, 0])):
            query = (torch.tensor([y], dtype=torch.float64) * scale).to(dtype)
            for references in (x, small):
                assert flat.knn(references, query, 2, cosine=True)[1].tolist() == wanted


def test_norms_are_added_in_order(backend: str) -> None:
    rows = torch.randn(50, 37, generator=torch.Generator().manual_seed(0))
    for cloud in (rows, rows.t().contiguous().t(), rows[:7]):
        wide = cloud.numpy()
        total = wide[:, 0] * wide[:, 0]
        for axis in range(1, 37):
            total = total + wide[:, axis] * wide[:, axis]
        wanted = wide / np.sqrt(total)[:, None]
        assert np.array_equal(flat._directions(cloud).numpy(), wanted)


def test_nearest(backend: str, shape: str) -> None:
    x, y = _cloud(shape, 1), _cloud(shape, 2)
    wanted = _by_hand(y, x, lambda q, p: oracle.knn(q, p, 1))
    assert flat.nearest(x, y, BATCH, BATCH).tolist() == wanted[1]
    with pytest.raises(ValueError, match="batch_y must be of at least one point in every cloud"):
        flat.nearest(x, y[:50], BATCH, BATCH[:50])


def test_fps(backend: str, shape: str) -> None:
    x = _cloud(shape)
    taken = flat.fps(x, BATCH, 0.3, random_start=False)
    wanted = []
    for first, last in itertools.pairwise(BOUNDS):
        count = int(np.ceil(np.float32(last - first) * np.float32(0.3)))
        if count:
            wanted += [first + i for i in oracle.fps(x[first:last], count)]
    assert taken.tolist() == wanted
    assert torch.equal(flat.fps(x, None, 0.3, False, ptr=BOUNDS), taken)
    assert torch.equal(flat.fps(x, None, 0.3, False, ptr=torch.tensor(BOUNDS)), taken)


def test_fps_ratio_arithmetic(backend: str) -> None:
    """ceil(float32(n) * float32(ratio)): 0.07 * 100 is 7.0000005 in float32, 7.000000000000001 in
    float64, and 0.1 as float16 is 0.09998."""
    cloud = torch.rand(100, 3)
    for ratio in (0.07, 0.1, 0.29, 0.5, 1.0):
        for dtype in (torch.float32, torch.float16):
            share = float(torch.tensor(ratio, dtype=dtype))
            count = int(np.ceil(np.float32(100) * np.float32(share)))
            assert flat.fps(cloud.to(dtype), ratio=ratio).numel() == min(count, 100)
    assert flat.fps(cloud).numel() == 50


def test_fps_random_start_follows_the_seed(backend: str) -> None:
    cloud = torch.rand(1000, 3)
    torch.manual_seed(3)
    first = flat.fps(cloud, ratio=0.01)
    torch.manual_seed(3)
    assert torch.equal(flat.fps(cloud, ratio=0.01), first)
    starts = {int(flat.fps(cloud, ratio=0.001)[0]) for _ in range(12)}
    assert len(starts) > 1


@pytest.mark.parametrize("bounds", [BOUNDS, torch.tensor(BOUNDS), torch.tensor(BOUNDS).int()])
def test_bounds_do_what_batch_vectors_do(backend: str, bounds: list[int] | torch.Tensor) -> None:
    x, y = _cloud("uniform", 1), _cloud("uniform", 2)
    both = {"ptr_x": bounds, "ptr_y": bounds}
    for cosine in (False, True):
        wanted = flat.knn(x, y, 5, BATCH, BATCH, cosine)
        assert torch.equal(flat.knn(x, y, 5, cosine=cosine, **both), wanted)
        wanted = flat.knn_graph(x, 5, BATCH, cosine=cosine)
        assert torch.equal(flat.knn_graph(x, 5, cosine=cosine, ptr=bounds), wanted)
    wanted = flat.radius(x, y, 0.4, BATCH, BATCH)
    assert torch.equal(flat.radius(x, y, 0.4, **both), wanted)
    # One side by bounds, the other by a batch vector.
    assert torch.equal(flat.radius(x, y, 0.4, BATCH, ptr_y=bounds), wanted)
    assert torch.equal(flat.radius(x, y, 0.4, ptr_x=bounds, batch_y=BATCH, batch_size=4), wanted)
    wanted = flat.radius_graph(x, 0.4, BATCH, flow="target_to_source")
    assert torch.equal(flat.radius_graph(x, 0.4, flow="target_to_source", ptr=bounds), wanted)
    assert torch.equal(flat.nearest(x, y, **both), flat.nearest(x, y, BATCH, BATCH))


def test_bad_bounds(backend: str) -> None:
    x, batch, ptr = torch.rand(4, 3), torch.tensor([0, 0, 1, 1]), [0, 2, 4]
    for call in (
        lambda p, **more: flat.knn(x, x, 1, ptr_x=p, ptr_y=p, **more),
        lambda p, **more: flat.radius(x, x, 1.0, ptr_x=p, ptr_y=p, **more),
        lambda p, **more: flat.knn_graph(x, 1, ptr=p, **more),
        lambda p, **more: flat.radius_graph(x, 1.0, ptr=p, **more),
        lambda p, **more: flat.nearest(x, x, ptr_x=p, ptr_y=p, **more),
    ):
        for wrong in ([0, 3], [0, 3, 2, 4], [1, 4], [0], torch.tensor([0, 5])):
            with pytest.raises(
                ValueError, match=r"ptr(_[xy])? must be ascending, start at 0 and end"
            ):
                call(wrong)
        with pytest.raises(TypeError, match=r"ptr(_[xy])? must be int64 or int32"):
            call([0.0, 4.0])
    for call in (flat.knn_graph, flat.radius_graph):
        with pytest.raises(ValueError, match="ptr must be None where batch is given"):
            call(x, 1, batch, ptr=ptr)
        with pytest.raises(ValueError, match="batch_size must be 2, the clouds of ptr, got 3"):
            call(x, 1, ptr=ptr, batch_size=3)
    for call in (flat.knn, flat.radius):
        with pytest.raises(ValueError, match="ptr_x must be None where batch_x is given"):
            call(x, x, 1, batch, batch, ptr_x=ptr)
        with pytest.raises(ValueError, match="ptr_y must be None where batch_y is given"):
            call(x, x, 1, batch, batch, ptr_y=ptr)
        with pytest.raises(ValueError, match="batch_size must be 2, the clouds of ptr_y, got 1"):
            call(x, x, 1, ptr_x=[0, 4], ptr_y=ptr, batch_size=1)
        with pytest.raises(ValueError, match="ptr_y must be of 3 entries as ptr_x has, got 2"):
            call(x, x, 1, ptr_x=ptr, ptr_y=[0, 4])
        with pytest.raises(ValueError, match=r"batch_y must be in \[0, 1\), got 1"):
            call(x, x, 1, ptr_x=[0, 4], batch_y=batch)
        with pytest.raises(ValueError, match="ptr_y must be given as ptr_x is, which tells 2 cl"):
            call(x, x, 1, ptr_x=ptr)
        assert call(x, x, 1, ptr_x=[0, 4]).shape[0] == 2
    with pytest.raises(ValueError, match="ptr_x must be None where batch_x is given"):
        flat.nearest(x, x, batch, batch, ptr_x=ptr)
    with pytest.raises(ValueError, match="ptr_y must be of at least one point in every cloud of"):
        flat.nearest(x, x, ptr_x=ptr, ptr_y=[0, 0, 4])


def test_one_axis_and_features(backend: str) -> None:
    line = torch.tensor([0.0, 5.0, 1.0])
    assert flat.knn(line, line, 2)[1].tolist() == [0, 2, 1, 2, 2, 0]
    assert flat.fps(line, ratio=0.5, random_start=False).tolist() == [0, 1]


def test_bad_input(backend: str) -> None:
    x = torch.rand(4, 3)
    for call in (
        lambda b: flat.knn(x, x, 1, b, b),
        lambda b: flat.radius(x, x, 1.0, b, b),
        lambda b: flat.knn_graph(x, 1, b),
        lambda b: flat.radius_graph(x, 1.0, b),
        lambda b: flat.nearest(x, x, b, b),
        lambda b: flat.fps(x, b),
    ):
        with pytest.raises(ValueError, match="must be sorted"):
            call(torch.tensor([0, 1, 0, 1]))
        with pytest.raises(ValueError, match="of 4 entries"):
            call(torch.tensor([0, 1]))
        with pytest.raises(ValueError, match=r"must be in \[0, "):
            call(torch.tensor([-1, 0, 0, 0]))
        with pytest.raises(TypeError, match="int64 or int32"):
            call(torch.zeros(4))
    with pytest.raises(ValueError, match=r"must be in \[0, 2\), got 2"):
        flat.knn(x, x, 1, torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 2]), batch_size=2)
    with pytest.raises(
        ValueError, match="batch_y must be given as batch_x is, which tells 2 cloud"
    ):
        flat.knn(x, x, 1, torch.tensor([0, 0, 1, 1]))
    with pytest.raises(
        ValueError, match="batch_x must be given as batch_y is, which tells 2 cloud"
    ):
        flat.radius(x, x, 1.0, None, torch.tensor([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="flow must be"):
        flat.knn_graph(x, 1, flow="up")
    with pytest.raises(ValueError, match=r"ratio must be in \(0, 1\]"):
        flat.fps(x, ratio=1.5)
    with pytest.raises(ValueError, match="ptr must be ascending, start at 0 and end at 4"):
        flat.fps(x, ptr=[0, 3])
    with pytest.raises(ValueError, match="of one dtype"):
        flat.knn(x, x.double(), 1)
    for radius in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="r must be finite and > 0"):
            flat.radius(x, x, radius)
    with pytest.raises(ValueError, match="x must be finite"):
        flat.knn(x * float("nan"), x, 1)


def test_bounds_go_before_a_batch_vector(backend: str) -> None:
    x = make_cloud("uniform", 12)
    batch, ptr = torch.arange(12) // 6, [0, 4, 12]
    taken = flat.fps(x, batch, 0.5, False, ptr=ptr).tolist()
    assert taken == flat.fps(x, None, 0.5, False, ptr=ptr).tolist()
    assert taken != flat.fps(x, batch, 0.5, False).tolist()


def test_a_share_is_never_more_than_the_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """float32 holds no 2^24 + 3, and rounds it up."""
    size = 2**24 + 3
    asked = []

    def sample(
        rows: torch.Tensor, bounds: torch.Tensor, counts: torch.Tensor, *_: object, **__: object
    ):
        asked.append(counts.tolist())

    monkeypatch.setattr(flat, "sample", sample)
    flat.fps_clouds(torch.zeros(1, 1).expand(size, 1), torch.tensor([0, size]), 1.0, False)
    assert float(torch.tensor(size).float()) > size
    assert asked == [[size]]


def test_empty(backend: str) -> None:
    nothing, batch = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    assert flat.knn(nothing, nothing, 3, batch, batch).shape == (2, 0)
    assert flat.radius(nothing, nothing, 1.0, batch, batch).shape == (2, 0)
    assert flat.knn_graph(nothing, 3, batch).shape == (2, 0)
    assert flat.radius_graph(nothing, 1.0, batch).shape == (2, 0)
    assert flat.fps(nothing, batch).shape == (0,)
    assert flat.nearest(nothing, nothing).shape == (0,)


def test_taken_points_can_stay_in_the_race(backend: str, shape: str) -> None:
    cloud = make_cloud(shape, 90)
    taken = flat.fps(cloud, ptr=[0, 40, 90], ratio=0.5, random_start=False, stay=True).tolist()
    assert taken[:20] == oracle.fps(cloud[:40], 20, stay=True)
    assert taken[20:] == [row + 40 for row in oracle.fps(cloud[40:], 25, stay=True)]
    assert flat.fps(torch.zeros(4, 3), random_start=False, stay=True).tolist() == [0, 0]
