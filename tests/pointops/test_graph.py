from __future__ import annotations

import pytest
import torch

from sparse3d.pointops import flat, graclus_cluster, neighbor_sampler, random_walk
from sparse3d.pointops.graph import graclus, graclus_csr, random_walk_csr, walk


@pytest.fixture
def graph() -> tuple[torch.Tensor, torch.Tensor]:
    found = flat.knn_graph(torch.rand(60, 3, generator=torch.Generator().manual_seed(0)), 4)
    both = torch.unique(torch.cat([found, found.flip(0)], 1), dim=1)
    return both[0], both[1]


@pytest.mark.parametrize("weighted", [False, True])
def test_graclus_matches_neighbours(
    backend: str, graph: tuple[torch.Tensor, torch.Tensor], weighted: bool
) -> None:
    row, col = graph
    weight = torch.rand(row.numel()) if weighted else None
    cluster = graclus_cluster(row, col, weight, 60)
    pairs = set(zip(row.tolist(), col.tolist(), strict=False))
    for number in cluster.unique().tolist():
        members = (cluster == number).nonzero()[:, 0].tolist()
        assert members[0] == number
        assert len(members) <= 2
        assert len(members) == 1 or tuple(members) in pairs
    alone = {n for n in range(60) if (cluster == n).sum() == 1 and cluster[n] == n}
    assert not any(a in alone and b in alone for a, b in pairs)


def test_graclus_takes_the_heaviest_free_neighbour_in_order(backend: str) -> None:
    rowptr = torch.tensor([0, 3, 4, 5, 6])
    col = torch.tensor([1, 2, 3, 0, 0, 0])
    order = torch.tensor([0, 1, 2, 3])
    none = torch.empty(0, dtype=torch.float64)
    assert graclus(rowptr, col, none, order).tolist() == [0, 0, 2, 3]
    weight = torch.tensor([1.0, 5.0, 2.0, 1, 5, 2], dtype=torch.float64)
    assert graclus(rowptr, col, weight, order).tolist() == [0, 1, 0, 3]
    weight[2] = 5.0  # of equal weights the last
    assert graclus(rowptr, col, weight, order).tolist() == [0, 1, 2, 0]
    assert graclus(rowptr, col, weight, order.flip(0)).tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize(("p", "q"), [(1, 1), (0.25, 4.0), (4.0, 0.25)])
def test_walks_follow_edges(
    backend: str, graph: tuple[torch.Tensor, torch.Tensor], p: float, q: float
) -> None:
    row, col = graph
    start = torch.arange(60)
    torch.manual_seed(1)
    nodes, edges = random_walk(row, col, start, 9, p, q, return_edge_indices=True)
    assert torch.equal(nodes[:, 0], start)
    assert torch.equal(row[edges], nodes[:, :-1])
    assert torch.equal(col[edges], nodes[:, 1:])
    torch.manual_seed(1)
    assert torch.equal(random_walk(row, col, start, 9, p, q), nodes)


def test_a_dead_end_stays(backend: str) -> None:
    row, col = torch.tensor([0]), torch.tensor([1])
    for p in (1.0, 2.0):
        nodes, edges = random_walk(
            row, col, torch.tensor([0, 1]), 3, p, 1.0, return_edge_indices=True
        )
        assert nodes.tolist() == [[0, 1, 1, 1], [1, 1, 1, 1]]
        assert edges.tolist() == [[0, -1, -1], [-1, -1, -1]]


def test_bias_returns_or_explores(backend: str) -> None:
    """On a path of 50 nodes a tiny p walks back and forth, a large p never turns round."""
    row = torch.cat([torch.arange(49), torch.arange(1, 50)])
    col = torch.cat([torch.arange(1, 50), torch.arange(49)])
    start = torch.full((40,), 25)
    torch.manual_seed(0)
    back = random_walk(row, col, start, 12, 1e-3, 1.0)
    onward = random_walk(row, col, start, 12, 1e3, 1.0)
    assert (back[:, 2:] == back[:, :-2]).float().mean() > 0.95
    assert (onward[:, 2:] == onward[:, :-2]).float().mean() < 0.05


def test_kernel_equals_reference(graph: tuple[torch.Tensor, torch.Tensor]) -> None:
    row, col = graph
    counts = torch.bincount(row, minlength=60)
    rowptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    start, uniform = torch.arange(60), torch.rand(60, 8)
    for p, q in ((1.0, 1.0), (0.3, 2.0)):
        mine = walk(rowptr, col, start, uniform, 8, p, q, 77)
        wanted = walk.reference(rowptr, col, start, uniform, 8, p, q, 77)
        assert all(torch.equal(a, b) for a, b in zip(mine, wanted, strict=False))
    order, weight = torch.randperm(60), torch.rand(row.numel(), dtype=torch.float64)
    for w in (weight, weight[:0]):
        assert torch.equal(graclus(rowptr, col, w, order), graclus.reference(rowptr, col, w, order))


def test_bad_input() -> None:
    row, col = torch.tensor([0, 1]), torch.tensor([1, 0])
    with pytest.raises(ValueError, match=r"col must be in \[0, 1\), got 1"):
        graclus_cluster(row * 0, col, num_nodes=1)
    with pytest.raises(ValueError, match="weight must be of 2 entries"):
        graclus_cluster(row, col, torch.ones(3))
    with pytest.raises(ValueError, match="p must be finite and > 0"):
        random_walk(row, col, row, 2, p=0)
    with pytest.raises(ValueError, match="walk_length must be >= 0"):
        random_walk(row, col, row, -1)
    with pytest.raises(ValueError, match="row must be sorted"):
        random_walk(row.flip(0), col, row, 1, coalesced=False)
    assert graclus_cluster(row[:0], col[:0]).shape == (0,)


@pytest.mark.parametrize("weighted", [False, True])
def test_int32_graphs_give_the_same(
    backend: str, graph: tuple[torch.Tensor, torch.Tensor], weighted: bool
) -> None:
    """The CPU kernel reads int64: int32 edges crashed it or gave other clusters."""
    row, col = graph
    weight = torch.rand(row.numel(), generator=torch.Generator().manual_seed(1))
    start = torch.arange(60)
    found = []
    for dtype in (torch.int64, torch.int32):
        r, c, s = row.to(dtype), col.to(dtype), start.to(dtype)
        torch.manual_seed(4)
        found.append(
            (
                graclus_cluster(r, c, weight if weighted else None, 60),
                random_walk(r, c, s, 5),
                random_walk(r, c, s, 5, 0.5, 2.0),
            )
        )
    for one, other in zip(*found, strict=True):
        assert one.dtype == other.dtype == torch.int64
        assert torch.equal(one, other)
    rowptr, order = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([0, 1])
    narrow = torch.tensor([1, 0], dtype=torch.int32)
    none = torch.empty(0, dtype=torch.float64)
    assert graclus(rowptr, narrow, none, order).tolist() == [0, 0]
    nodes, _ = walk(rowptr, narrow, narrow, torch.zeros(2, 2), 2, 1.0, 1.0, 0)
    assert nodes.tolist() == [[1, 0, 1], [0, 1, 0]]


def test_float64_as_default_dtype_walks_alike(
    backend: str, graph: tuple[torch.Tensor, torch.Tensor]
) -> None:
    torch.manual_seed(2)
    wanted = random_walk(*graph, torch.arange(60), 5)
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(2)
        assert torch.equal(random_walk(*graph, torch.arange(60), 5), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


def test_compressed_rows_are_checked(backend: str) -> None:
    """These crashed the process: nothing was checked on the way to the kernel."""
    rowptr, col = torch.tensor([0, 1, 2]), torch.tensor([1, 0])
    with pytest.raises(ValueError, match=r"col must be in \[0, 1\), got 5000000000"):
        graclus_csr(torch.tensor([0, 3]), torch.tensor([5_000_000_000, 1, 2]))
    with pytest.raises(ValueError, match=r"start at 0 and end at 2, the number of edges"):
        graclus_csr(rowptr + 1, col)
    with pytest.raises(ValueError, match="rowptr must be ascending"):
        random_walk_csr(torch.tensor([0, 5, 2]), col, col, 2, 1, 1)
    with pytest.raises(ValueError, match=r"col must be in \[0, 2\), got 40000000"):
        random_walk_csr(rowptr, torch.tensor([1, 40_000_000]), col, 2, 1, 1)
    with pytest.raises(ValueError, match=r"start must be in \[0, 2\), got 400000000"):
        random_walk_csr(rowptr, col, torch.tensor([400_000_000]), 2, 1, 1)
    with pytest.raises(ValueError, match=r"start must be in \[0, 2\), got -1"):
        random_walk_csr(rowptr, col, torch.tensor([-1]), 2, 1, 1)
    with pytest.raises(TypeError, match="rowptr must be int64 or int32"):
        graclus_csr(rowptr.float(), col)
    with pytest.raises(ValueError, match="weight must be of 2 entries"):
        graclus_csr(rowptr, col, torch.ones(3))
    assert graclus_csr(rowptr.int(), col.int()).tolist() == [0, 0]
    assert random_walk_csr(rowptr.int(), col.int(), col.int(), 1, 1, 1)[0].tolist() == [
        [1, 0],
        [0, 1],
    ]
    assert graclus_csr(rowptr[:1], col[:0]).shape == (0,)


def test_graphs_lie_on_one_device(backend: str) -> None:
    rowptr, col = torch.tensor([0, 1, 2]), torch.tensor([1, 0])
    row, away = torch.tensor([0, 1]), torch.ones(2, device="meta")
    for call in (
        lambda: graclus_cluster(row, col, away),
        lambda: graclus_cluster(row, col.to("meta")),
        lambda: graclus_csr(rowptr, col, away),
        lambda: graclus_csr(rowptr.to("meta"), col),
        lambda: random_walk(row, col, row.to("meta"), 2),
        lambda: random_walk_csr(rowptr, col, row.to("meta"), 2, 1, 1),
    ):
        with pytest.raises(ValueError, match="must be on one device, got"):
            call()


def test_neighbour_sampler_takes_edges_once() -> None:
    rowptr = torch.tensor([0, 5, 5, 9])
    start = torch.tensor([2, 0, 1], dtype=torch.int32)
    whole = neighbor_sampler(start, rowptr, 1.0)
    assert sorted(whole[:4].tolist()) == [5, 6, 7, 8]
    assert sorted(whole[4:].tolist()) == [0, 1, 2, 3, 4]
    few = neighbor_sampler(start, rowptr, 3)
    assert set(few[:3].tolist()) < {5, 6, 7, 8}
    assert len(set(few.tolist())) == 6
    assert len(neighbor_sampler(start, rowptr, 0.5)) == 2 + 3  # ceil of the share
    assert neighbor_sampler(start[2:], rowptr, 3).tolist() == []
    torch.manual_seed(0)
    seen = {tuple(neighbor_sampler(start[1:2], rowptr, 2).tolist()) for _ in range(300)}
    assert len(seen) == 20  # every ordered pair of five edges


def test_bad_samples() -> None:
    rowptr, start = torch.tensor([0, 2]), torch.tensor([0])
    with pytest.raises(ValueError, match="size must be finite and > 0, got 0"):
        neighbor_sampler(start, rowptr, 0)
    with pytest.raises(ValueError, match=r"start must be in \[0, 1\), got 1"):
        neighbor_sampler(start + 1, rowptr, 1)
    with pytest.raises(ValueError, match="rowptr must be ascending"):
        neighbor_sampler(start, torch.tensor([0, 3, 2]), 1)


def test_chances_of_a_second_step(backend: str) -> None:
    """From 0 over 1: back by 1/p, to 2, which leads to 0, by 1, to 3, which 0 leads to, by 1/q."""
    row = torch.tensor([0, 0, 1, 1, 1, 2])
    col = torch.tensor([1, 3, 0, 2, 3, 0])
    walks = random_walk(row, col, torch.zeros(6000, dtype=torch.int64), 2, p=2, q=4)
    assert isinstance(walks, torch.Tensor)
    second = walks[walks[:, 1] == 1, 2]
    shares = torch.bincount(second, minlength=4).double() / len(second)
    wanted = torch.tensor([1 / 2, 0, 1, 1 / 4], dtype=torch.float64)
    assert len(second) > 2500
    assert float((shares - wanted / wanted.sum()).abs().max()) < 0.04  # four deviations


def test_edges_are_sorted_by_both_ends(backend: str) -> None:
    row, col = torch.zeros(3, dtype=torch.int64), torch.tensor([2, 0, 1])
    start = torch.zeros(50, dtype=torch.int64)
    nodes, edges = random_walk(row, col, start, 1, return_edge_indices=True)
    assert torch.equal(nodes[:, 1], edges[:, 0])
    assert set(edges[:, 0].tolist()) == {0, 1, 2}
