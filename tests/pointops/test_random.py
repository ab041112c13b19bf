"""Every operator on random hard clouds against brute force, on the reference and the CPU kernels.

A few hundred cases of each run always; `-m nightly` draws new ones for minutes, and a failing case
names its seed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import hard_clouds as brute
import numpy as np
import pytest
import torch
from hard_clouds import Draw, wide

from sparse3d import _registry, pointops
from sparse3d.compat import knn_cuda, pytorch3d, torch_cluster
from sparse3d.compat import pointops as pointcept_stand_in
from sparse3d.compat.pointnet2_ops import pointnet2_utils as pointnet2
from sparse3d.pointops import flat, pointcept
from sparse3d.pointops._inputs import SMALLEST_NORMAL

BACKENDS = ("reference", "cpu")


def each(run: Callable[[], Any]) -> Any:
    """What every backend gives, which must be the same bytes."""
    results = []
    for backend in BACKENDS:
        with _registry.force(backend):
            found = run()
        results.append(found if isinstance(found, tuple) else (found,))
    for one, other in zip(*results, strict=True):
        if one is not None:
            assert one.dtype == other.dtype
            assert torch.equal(one.detach(), other.detach())
    return results[0] if len(results[0]) > 1 else results[0][0]


def rooted(values: np.ndarray) -> np.ndarray:
    return np.sqrt(values)


def radius_for(draw: Draw, distances: np.ndarray, *, double: bool) -> tuple[float, Any] | None:
    """A radius near some distance of the table, and its square as the contract rounds it."""
    finite = distances[np.isfinite(distances) & (distances > 0)]
    square = float(draw.rng.choice(finite)) if finite.size else 1.0
    radius = float(np.sqrt(square)) * float(draw.pick(1.0, 1.0, 0.5, 2.0, 1 + 2**-23))
    with np.errstate(over="ignore", under="ignore"):
        if distances.dtype == np.float64:
            limit = np.float64(radius) * np.float64(radius)
            small = 0.0
        else:
            narrow = np.float32(radius)
            limit = np.float32(radius * radius) if double else narrow * narrow
            small = SMALLEST_NORMAL
    return (radius, limit) if np.isfinite(limit) and limit > 0 and limit >= small else None


def case_fps(draw: Draw) -> None:
    batch, rows = 1 + draw.below(3), max(draw.size(300), 1)
    cloud = draw.cloud(rows, 3, batch)
    count, start = draw.below(min(rows + 3, 60)), draw.below(rows)
    near = bool(draw.below(2))
    found = each(lambda: pointops.furthest_point_sample(cloud, count, start, near))
    for line, points in zip(found.tolist(), wide(cloud), strict=True):
        with np.errstate(over="ignore", under="ignore"):
            squares = points[:, 0] * points[:, 0]
            for axis in (1, 2):
                squares = squares + points[:, axis] * points[:, axis]
        barred = squares.astype(np.float64) <= 1e-3 if near else None
        assert line == brute.farthest(points, count, start, barred=barred)
        if not near:
            assert len(set(line)) == min(count, rows)


def case_knn(draw: Draw) -> None:
    batch, dim = 1 + draw.below(2), 1 + draw.below(6)
    queries, rows = draw.size(130), max(draw.size(), 1)
    query, cloud = draw.cloud(queries, dim, batch), draw.cloud(rows, dim, batch)
    k = min(rows, 1024, int(draw.pick(0, 1, 3, 16, 33, 65, rows, 1024)))
    if draw.below(3) == 0:
        query, queries = cloud, rows
    distance, index = each(lambda: pointops.knn(query, cloud, k))
    for b in range(batch):
        q, p = wide(query[b]), wide(cloud[b])
        distances = brute.table(q, p)
        wanted = brute.nearest(distances, k)
        assert np.array_equal(index[b].numpy(), wanted)
        kept = np.take_along_axis(distances, wanted, 1)
        assert np.array_equal(distance[b].numpy(), rooted(kept))
        brute.check_float64(q, p, wanted)
    if dim == 3 and batch == 1:
        if draw.below(2):
            held = pointops.SpatialIndex(cloud[0])
            assert torch.equal(held.knn(query[0], k)[1], index[0])
        turned = knn_cuda.KNN(k, False)(cloud.transpose(1, 2), query.transpose(1, 2))
        assert torch.equal(turned[1].transpose(1, 2), index)


def case_ball(draw: Draw) -> None:
    batch, queries, rows = 1 + draw.below(2), draw.size(130), max(draw.size(), 1)
    query, cloud = draw.cloud(queries, 3, batch), draw.cloud(rows, 3, batch)
    k, closest = int(draw.pick(0, 1, 4, 32, rows + 3)), bool(draw.below(2))
    tables = [brute.table(wide(query[b]), wide(cloud[b])) for b in range(batch)]
    chosen = radius_for(draw, tables[0], double=False)
    if chosen is None or (closest and min(k, rows) > 1024):
        return
    radius, limit = chosen
    distance, index = each(lambda: pointops.ball_query(query, cloud, radius, k, nearest=closest))
    for b, distances in enumerate(tables):
        hit = distances < limit
        if closest:
            order = brute.nearest(distances, k)
            wanted = np.where(np.take_along_axis(hit, order, 1), order, -1)
            wanted = np.pad(wanted, ((0, 0), (0, k - wanted.shape[1])), constant_values=-1)
        else:
            wanted = brute.first_hits(hit, k)
        assert np.array_equal(index[b].numpy(), wanted)
        if rows:
            kept = np.take_along_axis(distances, np.maximum(wanted, 0), 1)
            assert np.array_equal(distance[b].numpy(), np.where(wanted < 0, 0, kept))
    if not closest and batch == 1 and draw.below(2):
        held = pointops.SpatialIndex(cloud[0])
        assert torch.equal(held.ball_query(query[0], radius, k)[1], index[0])
    if not closest:
        peers = each(lambda: pointnet2.ball_query(radius, k, cloud, query)).numpy()
        first = np.maximum(index[..., :1].numpy(), 0)
        assert np.array_equal(peers, np.where(index.numpy() < 0, first, index.numpy()))


def case_large(draw: Draw) -> None:
    """Clouds that are searched through a tree, more leaves near some queries than others."""
    draw.dtype, dim, rows = torch.float32, 1 + draw.below(3), 1024 + draw.below(5000)
    cloud = draw.cloud(rows, dim, 1)
    query = cloud if draw.below(2) else draw.cloud(64 + draw.below(600), dim, 1)
    q, p = wide(query[0]), wide(cloud[0])
    some = draw.rng.choice(len(q), 150)
    k, norm = int(draw.pick(1, 5, 16, 33, 64, 100)), 1 + draw.below(2)
    with _registry.force("cpu"):
        found = pytorch3d.ops.knn_points(query, cloud, norm=norm, K=k)
    distances = brute.table(q[some], p, norm)
    wanted = brute.nearest(distances, k)
    assert np.array_equal(found[1][0, some].numpy(), wanted)
    assert np.array_equal(found[0][0, some].numpy(), np.take_along_axis(distances, wanted, 1))
    distances = brute.table(q[some], p)
    order = np.sort(distances.ravel())
    near = order[[len(p) // 8, len(p), 15 * len(p)]]  # few to hundreds of hits a query
    chosen = radius_for(draw, near, double=False)
    if chosen is None:
        return
    radius, limit = chosen
    with _registry.force("cpu"):
        found = pytorch3d.ops.ball_query(query, cloud, K=k, radius=radius)
    assert np.array_equal(found[1][0, some].numpy(), brute.first_hits(distances < limit, k))
    if query is cloud:
        with _registry.force("cpu"):
            edges = flat.radius_graph(cloud[0], radius, None, False, 500)
        hit = distances < np.float32(radius * radius)
        hit[np.arange(len(some)), some] = False
        counts = torch.bincount(edges[1], minlength=rows)[some]
        assert np.array_equal(counts.numpy(), np.minimum(hit.sum(1), 500))


def flat_clouds(draw: Draw, dim: int) -> tuple[torch.Tensor, ...]:
    """Two flat clouds of as many samples, their batch vectors and sizes."""
    xs = draw.sizes()
    ys = [0 if draw.rng.random() < 0.2 else draw.size(60) for _ in xs]
    samples = torch.arange(len(xs))
    batches = [torch.repeat_interleave(samples, torch.tensor(sizes)) for sizes in (xs, ys)]
    return draw.cloud(sum(xs), dim), draw.cloud(sum(ys), dim), *batches, xs, ys  # type: ignore[return-value]


def by_cloud(
    xs: list[int], ys: list[int], find: Callable[[slice, slice], list[np.ndarray]]
) -> list[list[int]]:
    """Edges (query, reference) from the columns that `find` gives for the rows of each sample."""
    edges: list[list[int]] = [[], []]
    x_ends, y_ends = np.cumsum([0, *xs]).tolist(), np.cumsum([0, *ys]).tolist()
    for (a, b), (c, d) in zip(itertools.pairwise(x_ends), itertools.pairwise(y_ends), strict=True):
        for row, line in enumerate(find(slice(a, b), slice(c, d))):
            kept = [int(i) for i in line if i >= 0]
            edges[0] += [c + row] * len(kept)
            edges[1] += [a + i for i in kept]
    return edges


def case_flat_knn(draw: Draw) -> None:
    x, y, batch_x, batch_y, xs, ys = flat_clouds(draw, 1 + draw.below(6))
    k, p, q = int(draw.pick(0, 1, 5, 20, 200)), wide(x), wide(y)
    found = each(lambda: flat.knn(x, y, k, batch_x, batch_y, batch_size=len(xs)))

    def near(rows: slice, queries: slice) -> list[np.ndarray]:
        return list(brute.nearest(brute.table(q[queries], p[rows]), k))

    assert found.tolist() == by_cloud(xs, ys, near)
    if all(xs[sample] for sample, size in enumerate(ys) if size):
        wanted = by_cloud(xs, ys, lambda a, b: list(brute.nearest(brute.table(q[b], p[a]), 1)))
        assert each(lambda: flat.nearest(y, x, batch_y, batch_x)).tolist() == wanted[1]
    loop, flow = bool(draw.below(2)), str(draw.pick("source_to_target", "target_to_source"))

    def others(rows: slice, queries: slice) -> list[np.ndarray]:
        lines = brute.nearest(brute.table(p[queries], p[rows]), x.shape[0])
        return [line[(line != row) | loop][:k] for row, line in enumerate(lines)]

    graph = each(lambda: flat.knn_graph(x, k, batch_x, loop, flow))
    wanted = by_cloud(xs, xs, others)
    assert graph.tolist() == (wanted if flow == "target_to_source" else wanted[::-1])


def case_flat_radius(draw: Draw) -> None:
    x, y, batch_x, batch_y, xs, ys = flat_clouds(draw, 1 + draw.below(4))
    most, p, q = int(draw.pick(0, 1, 5, 32, 500)), wide(x), wide(y)
    chosen = radius_for(draw, brute.table(q, p), double=True)
    if chosen is None:
        return
    radius, limit = chosen
    for same in (False, True):
        ids = np.arange(len(p))

        def hits(rows: slice, queries: slice, same: bool = same, ids: Any = ids) -> Any:
            hit = brute.table(q[queries], p[rows]) < limit
            if same:
                hit &= np.arange(len(q))[queries][:, None] != ids[rows]
            return list(brute.first_hits(hit, most))

        found = each(
            lambda same=same: flat.radius(
                x, y, radius, batch_x, batch_y, most, batch_size=len(xs), ignore_same_index=same
            )
        )
        assert found.tolist() == by_cloud(xs, ys, hits)
    loop, flow = bool(draw.below(2)), str(draw.pick("source_to_target", "target_to_source"))

    def around(rows: slice, queries: slice) -> list[np.ndarray]:
        hit = brute.table(p[queries], p[rows]) < limit
        if not loop:
            np.fill_diagonal(hit, False)
        return list(brute.first_hits(hit, most))

    graph = each(lambda: flat.radius_graph(x, radius, batch_x, loop, most, flow))
    wanted = by_cloud(xs, xs, around)
    assert graph.tolist() == (wanted if flow == "target_to_source" else wanted[::-1])


def case_flat_fps(draw: Draw) -> None:
    sizes, dim = draw.sizes(), 1 + draw.below(6)
    x = draw.cloud(sum(sizes), dim)
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    ends = np.cumsum([0, *sizes]).tolist()
    ratio = float(draw.pick(0.07, 0.1, 0.25, 0.5, 1.0))
    points, wanted, stays = wide(x), [], []
    share = np.float32(float(torch.tensor(ratio, dtype=x.dtype)))
    for first, last in itertools.pairwise(ends):
        count = min(int(np.ceil(np.float32(last - first) * share)), last - first)
        if count:
            wanted += [first + i for i in brute.farthest(points[first:last], count, 0)]
            again = brute.farthest(points[first:last], count, 0, stay=True)
            stays += [first + i for i in again]
    found = each(lambda: flat.fps(x, batch, ratio, False, len(sizes)))
    assert found.tolist() == wanted
    assert flat.fps(x, None, ratio, False, ptr=ends).tolist() == wanted
    assert each(lambda: torch_cluster.fps(x, batch, ratio, False)).tolist() == stays


def case_padded(draw: Draw) -> None:
    batch, dim, first, second = 1 + draw.below(3), 1 + draw.below(5), draw.size(70), draw.size(130)
    p1, p2 = draw.cloud(first, dim, batch), draw.cloud(second, dim, batch)
    if draw.dtype in (torch.float16, torch.bfloat16):
        p1, p2 = p1.float(), p2.float()
    lengths1 = torch.tensor([draw.below(first + 1) for _ in range(batch)])
    lengths2 = torch.tensor([draw.below(second + 1) for _ in range(batch)])
    k, norm = int(draw.pick(1, 4, 40, second + 2)), 1 + draw.below(2)
    found = each(lambda: tuple(pytorch3d.ops.knn_points(p1, p2, lengths1, lengths2, norm, k)))
    taken = each(lambda: pytorch3d.ops.sample_farthest_points(p2, lengths2, 6))
    for b, (m, n) in enumerate(zip(lengths1.tolist(), lengths2.tolist(), strict=True)):
        q, p = wide(p1[b, :m]), wide(p2[b, :n])
        distances = brute.table(q, p, norm)
        order = brute.nearest(distances, k)
        kept = np.take_along_axis(distances, order, 1)
        width = order.shape[1]
        assert np.array_equal(found[1][b, :m, :width].numpy(), order)
        assert np.array_equal(found[0][b, :m, :width].numpy(), kept)
        assert not found[1][b, :, width:].any()
        assert not found[0][b, m:].any()
        line = brute.farthest(p.astype(np.float32), min(6, n), 0, stay=True)
        assert taken[1][b].tolist() == line + [-1] * (6 - len(line))
    tables = brute.table(wide(p1.reshape(-1, dim)), wide(p2.reshape(-1, dim)))
    chosen = radius_for(draw, tables, double=False)
    if chosen is None:
        return
    radius, limit = chosen
    balls = each(lambda: tuple(pytorch3d.ops.ball_query(p1, p2, lengths1, lengths2, k, radius)))
    for b, (m, n) in enumerate(zip(lengths1.tolist(), lengths2.tolist(), strict=True)):
        hit = brute.table(wide(p1[b, :m]), wide(p2[b, :n])) < limit
        assert np.array_equal(balls[1][b, :m].numpy(), brute.first_hits(hit, k))
        assert (balls[1][b, m:] == -1).all()


def case_offsets(draw: Draw) -> None:
    x, y, _, _, xs, ys = flat_clouds(draw, 3)
    if draw.dtype == torch.float64:
        x, y = x.float(), y.float()
    offset = torch.tensor(xs).cumsum(0).int()
    new_offset = torch.tensor(ys).cumsum(0).int()
    k, p, q = int(draw.pick(1, 5, 40)), wide(x), wide(y)
    index, distance = each(lambda: pointcept.knn_query(k, x, offset, y, new_offset))
    tables = by_cloud(xs, ys, lambda a, b: list(brute.nearest(brute.table(q[b], p[a]), k)))
    found = index >= 0
    assert index[found].tolist() == tables[1]
    assert (distance[~found] == 1e5).all()
    starts = [row for size, row in zip(xs, np.cumsum([0, *xs]).tolist(), strict=False) if size]
    counts = [min(4, size) for size in xs]
    ends = torch.tensor(counts).cumsum(0).int()
    taken = each(lambda: pointcept.farthest_point_sampling(x, offset, ends)).tolist()
    slots = min(1024, 1 << max(max(xs).bit_length() - 1, 0))
    wanted: list[int] = []
    for row, size in zip(starts, [size for size in xs if size], strict=True):
        line = brute.farthest(p[row : row + size], min(4, size), 0, stay=True, slots=slots)
        wanted += [row + i for i in line]
    assert taken == wanted
    chosen = radius_for(draw, brute.table(q, p), double=False)
    if chosen is None:
        return
    radius, limit = chosen
    index, distance = each(
        lambda: pointcept_stand_in.ball_query(k, radius, 0.3 * radius, x, offset, y, new_offset)
    )
    inner = np.float32(0.3 * radius) * np.float32(0.3 * radius)

    def shell(rows: slice, queries: slice) -> list[np.ndarray]:
        lines = []
        for line in brute.table(q[queries], p[rows]):
            order = np.argsort(line, kind="stable")
            kept = line[order]
            order = order[(kept <= np.float32(1e-5)) | ((kept >= inner) & (kept < limit))]
            if len(order) > k:
                step = np.float32(len(order)) / np.float32(k)
                order = order[[int(step * np.float32(i)) for i in range(k)]]
            lines.append(order)
        return lines

    assert index[index >= 0].tolist() == by_cloud(xs, ys, shell)[1]


def case_three(draw: Draw) -> None:
    batch, places, known = 1 + draw.below(2), draw.size(130), max(draw.size(130), 3)
    unknown, points = draw.cloud(places, 3, batch), draw.cloud(known, 3, batch)
    distance, index = each(lambda: pointops.three_nn(unknown, points))
    channels = draw.below(6)
    features = torch.from_numpy(draw.rng.standard_normal((batch, channels, known)))
    features = features.to(draw.dtype)
    weight = torch.from_numpy(draw.rng.random((batch, places, 3)))
    weight = weight.to(torch.float64 if draw.dtype == torch.float64 else torch.float32)
    out = each(lambda: pointops.three_interpolate(features, index, weight))
    for b in range(batch):
        distances = brute.table(wide(unknown[b]), wide(points[b]))
        order = brute.nearest(distances, 3)
        assert np.array_equal(index[b].numpy(), order)
        kept = np.take_along_axis(distances, order, 1)
        assert np.array_equal(distance[b].numpy(), rooted(kept))
        f, w = wide(features[b]), weight[b].numpy()
        total = f[:, order[:, 0]] * w[:, 0]
        for corner in (1, 2):
            total = total + f[:, order[:, corner]] * w[:, corner]
        assert torch.equal(out[b], torch.from_numpy(total).to(draw.dtype))
    picks = torch.from_numpy(draw.rng.integers(-1, known, (batch, places, 2)))
    grouped = each(lambda: pointops.group(features, picks))
    for b in range(batch):
        wanted = torch.where(picks[b] >= 0, features[b][:, picks[b].clamp_min(0)], 0)
        assert torch.equal(grouped[b], wanted)


def case_chamfer(draw: Draw) -> None:
    batch = 1 + draw.below(3)
    first, second = max(draw.size(70), 1), max(draw.size(70), 1)
    x, y = draw.cloud(first, 3, batch), draw.cloud(second, 3, batch)
    sizes = [torch.tensor([draw.below(n + 1) for _ in range(batch)]) for n in (first, second)]
    norm, one_way = 1 + draw.below(2), bool(draw.below(2))
    reduction = draw.pick("mean", "sum", "max")
    found, _ = each(
        lambda: pointops.chamfer_distance(
            x, y, *sizes, batch_reduction=None, point_reduction=reduction, norm=norm,
            single_directional=one_way,
        )
    )  # fmt: skip
    for b, (m, n) in enumerate(zip(*(part.tolist() for part in sizes), strict=True)):
        distances = brute.table(wide(x[b, :m]), wide(y[b, :n]), norm).astype(np.float64)
        ways, largest = [], 0.0
        for axis in (1,) if one_way else (1, 0):
            near = distances.min(axis) if distances.size else np.zeros(1)
            largest += near.sum()
            ways.append({"mean": near.mean, "sum": near.sum, "max": near.max}[reduction]())
        total = max(ways) if reduction == "max" else sum(ways)
        if largest < 3e38:  # sums are float32
            assert float(found[b]) == pytest.approx(total, rel=1e-5, abs=1e-42)


def case_gradients(draw: Draw) -> None:
    """Gradients of kept distances against torch's own through a table of all distances."""
    draw.dtype, draw.kind = torch.float64, str(draw.pick(*brute.KINDS[:8]))
    batch, first, second, dim = 1 + draw.below(2), draw.size(33), draw.size(65), 1 + draw.below(4)
    p1, p2 = draw.cloud(first, dim, batch), draw.cloud(second, dim, batch)
    k, norm = 1 + draw.below(6), 1 + draw.below(2)
    lengths2 = torch.tensor([draw.below(second + 1) for _ in range(batch)])
    mine = [p1.clone().requires_grad_(), p2.clone().requires_grad_()]
    theirs = [p1.clone().requires_grad_(), p2.clone().requires_grad_()]
    weight = torch.from_numpy(draw.rng.standard_normal((batch, first, k)))
    found = pytorch3d.ops.knn_points(*mine, lengths2=lengths2, norm=norm, K=k)
    (found.dists * weight).sum().backward()
    apart = theirs[0][:, :, None] - theirs[1][:, None]
    everything = apart.abs().sum(-1) if norm == 1 else (apart * apart).sum(-1)
    valid = torch.arange(k)[None, None] < lengths2[:, None, None]
    if second:
        kept = everything.gather(2, found.idx)
        torch.where(valid, kept * weight, 0).sum().backward()
    for one, other in zip(mine, theirs, strict=True):
        assert one.grad is not None
        wanted = torch.zeros_like(one) if other.grad is None else other.grad
        assert torch.allclose(one.grad, wanted, rtol=1e-9, atol=1e-9)
    features = torch.from_numpy(draw.rng.standard_normal((batch, 3, second))).requires_grad_()
    picks = torch.from_numpy(draw.rng.integers(-1, max(second, 1), (batch, first, 2)))
    picks = picks if second else picks * 0 - 1
    scale = torch.from_numpy(draw.rng.standard_normal((batch, 3, first, 2)))
    (pointops.group(features, picks) * scale).sum().backward()
    wanted = torch.zeros_like(features)
    for b in range(batch):
        for at in np.ndindex(first, 2):
            if picks[b][at] >= 0:
                wanted[b, :, picks[b][at]] += scale[b, :, at[0], at[1]]
    assert features.grad is not None
    assert torch.allclose(features.grad, wanted)


def case_scatter(draw: Draw) -> None:
    shape = [1 + draw.below(5) for _ in range(1 + draw.below(3))]
    dim = draw.below(len(shape))
    shape[dim] = draw.size(130)
    src = torch.from_numpy(draw.rng.integers(-3, 4, shape)).to(draw.dtype)
    narrow = draw.below(2) or not src.numel()
    segments = 1 + draw.below(40)
    index = torch.from_numpy(draw.rng.integers(0, segments, shape[dim] if narrow else shape))
    total, mean = (
        each(lambda run=run: run(src, index, dim, segments))
        for run in (pointops.scatter_sum, pointops.scatter_mean)
    )
    high, low = (
        each(lambda run=run: run(src, index, dim, segments))
        for run in (pointops.scatter_max, pointops.scatter_min)
    )
    spread = index.view([-1 if a == dim else 1 for a in range(len(shape))]) if narrow else index
    rows = src.double().movedim(dim, 0).numpy()
    ids = spread.expand(shape).movedim(dim, 0).numpy()
    for segment in range(segments):
        mine = ids == segment
        some = mine.any(0)
        place = [part.movedim(dim, 0)[segment].double().numpy() for part in (total, mean)]
        exact = np.where(mine, rows, 0).sum(0)
        assert np.array_equal(place[0], exact)
        assert place[1] == pytest.approx(exact / np.maximum(mine.sum(0), 1), rel=1e-2, abs=1e-6)
        for found, worst, best in ((high, -9.0, np.argmax), (low, 9.0, np.argmin)):
            value, arg = (part.movedim(dim, 0)[segment].numpy() for part in
                          (found[0].double(), found[1]))  # fmt: skip
            if not len(rows):
                assert not value.any()
                continue
            first = best(np.where(mine, rows, worst), axis=0)
            assert np.array_equal(arg, np.where(some, first, -1))
            picked = np.take_along_axis(rows, np.expand_dims(first, 0), 0)[0]
            assert np.array_equal(value, np.where(some, picked, 0))


CASES = {name: run for name, run in globals().items() if name.startswith("case_")}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "seconds", [pytest.param(0, id="quick"), pytest.param(60, id="long", marks=pytest.mark.nightly)]
)
def test_random_clouds(name: str, seconds: float) -> None:
    reason = _registry.load("cpu")
    if reason is not None:
        pytest.skip(f"cpu: {reason}")
    first = time.time_ns() if seconds else 0
    end = time.monotonic() + seconds
    for step in itertools.count():
        if step >= (10 if name == "case_large" else 40) and time.monotonic() >= end:
            break
        seed = (first + step) % (1 << 62)
        try:
            CASES[name](Draw.of(seed))
        except Exception as error:
            error.add_note(f"case {name}, seed {seed}: {Draw.of(seed)}")
            raise
