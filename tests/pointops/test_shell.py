from __future__ import annotations

import numpy as np
import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import shell

OFFSET = torch.tensor([60, 60, 61, 200], dtype=torch.int32)
CLOUDS = [(0, 60), (60, 60), (60, 61), (61, 200)]


def _members(cloud: torch.Tensor, inner: float, outer: float) -> list[list[tuple[float, int]]]:
    """Points of each query's shell as (squared distance, row), ordered."""
    low, high = np.float32(inner) ** 2, np.float32(outer) ** 2
    rows = []
    for first, last in CLOUDS:
        table = oracle.distances32(cloud[first:last], cloud[first:last])
        kept = (table <= 1e-5) | ((table >= low) & (table < high))
        for line, hits in zip(table, kept, strict=True):
            rows.append(sorted((float(line[i]), int(i) + first) for i in np.flatnonzero(hits)))
    return rows


@pytest.mark.parametrize("samples", [3, 40])
def test_the_shell_is_sorted_and_spread_over(backend: str, shape: str, samples: int) -> None:
    cloud = make_cloud(shape, 200)
    outer = oracle.RADII[shape] * 3
    inner = outer / 4
    index, distance = shell.shell_query(samples, outer, inner, cloud, OFFSET)
    assert index.dtype == torch.int32
    full = 0
    for row, whole in enumerate(_members(cloud, inner, outer)):
        members = whole
        if len(whole) > samples:
            step = np.float32(len(whole)) / np.float32(samples)
            members = [whole[int(np.float32(step * np.float32(i)))] for i in range(samples)]
            full += 1
        missing = samples - len(members)
        assert index[row].tolist() == [place for _, place in members] + [-1] * missing
        roots = [float(np.sqrt(np.float32(squared))) for squared, _ in members]
        assert distance[row].tolist() == roots + [1e5] * missing
    assert full or samples == 40


def test_queries_of_their_own() -> None:
    line = torch.arange(20.0)[:, None] * torch.tensor([1.0, 0, 0])
    ends, centres = torch.tensor([10, 20]), torch.tensor([[0.4, 0, 0], [15.0, 0, 0]])
    index, distance = shell.shell_query(4, 2.5, 0.0, line, ends, centres, torch.tensor([1, 2]))
    assert index.tolist() == [[0, 1, 2, -1], [15, 14, 16, 13]]
    assert torch.allclose(distance[0, :3], torch.tensor([0.4, 0.6, 1.6]))


def test_many_hits_are_all_looked_at() -> None:
    """The search widens until the farthest neighbour found lies outside."""
    heap = torch.cat([torch.zeros(500, 3), torch.ones(1, 3)])
    index, _ = shell.shell_query(
        2, 0.5, 0.1, heap, torch.tensor([501]), heap[:1], torch.tensor([1])
    )
    assert index.tolist() == [[0, 250]]


def test_random_members_are_members_once_and_all_in_time(backend: str) -> None:
    cloud = make_cloud("uniform", 200)
    torch.manual_seed(0)
    seen: list[set[int]] = [set() for _ in range(200)]
    members = _members(cloud, 0.4, 1.2)
    draws = 4 if backend == "metal" else 60  # in the emulator all would take minutes
    for _ in range(draws):
        index, distance = shell.random_shell_query(5, 1.2, 0.4, cloud, OFFSET)
        for row, found in enumerate(index.tolist()):
            taken = [place for place in found if place >= 0]
            assert len(set(taken)) == len(taken) == min(5, len(members[row]))
            seen[row] |= set(taken)
        kept = index >= 0
        apart = cloud[index.clamp_min(0).long()] - cloud[:, None]
        assert torch.allclose(distance[kept], apart.norm(dim=2)[kept], atol=1e-5)
        assert (distance[~kept] == 1e5).all()
    for got, whole in zip(seen, members, strict=True):
        wanted = {place for _, place in whole}
        assert got <= wanted
        assert draws < 60 or got == wanted


def test_bad_input(backend: str) -> None:
    cloud, end = torch.zeros(4, 3), torch.tensor([4])
    with pytest.raises(ValueError, match=r"min_radius must be in \[0, 1.0\), max_radius, got 2"):
        shell.shell_query(4, 1.0, 2.0, cloud, end)
    with pytest.raises(ValueError, match="max_radius must be finite and > 0"):
        shell.random_shell_query(4, 0.0, 0.0, cloud, end)
    with pytest.raises(ValueError, match="nsample must be >= 1"):
        shell.shell_query(0, 1.0, 0.0, cloud, end)
    with pytest.raises(ValueError, match="offset must be ascending and end at 4"):
        shell.shell_query(1, 1.0, 0.0, cloud, torch.tensor([3]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_both_radii_are_squared_in_the_dtype_of_the_points(
    backend: str, dtype: torch.dtype
) -> None:
    """A point at distance r is inside [r, 1), and outside [0, r)."""
    for radius in (0.1, 0.7, 0.3, 0.9):
        line = torch.tensor([[0.0, 0, 0], [radius, 0, 0]], dtype=torch.float64).to(dtype)
        if dtype != torch.float64:
            radius = float(line[1, 0])  # noqa: PLW2901  # a number of the points' dtype
        end, one = torch.tensor([2]), torch.tensor([1])
        outer = shell.shell_query(2, 1.0, radius, line, end, line[:1], one)[0]
        inner = shell.shell_query(2, radius, 0.0, line, end, line[:1], one)[0]
        assert outer.tolist() == [[0, 1]]
        assert inner.tolist() == [[0, -1]]


def test_radii_of_numpy_and_small_ones(backend: str) -> None:
    cloud, end = torch.rand(9, 3), torch.tensor([9])
    wanted = shell.shell_query(4, 0.5, 0.25, cloud, end)[0]
    found = shell.shell_query(4, np.float32(0.5), np.float32(0.25), cloud, end)[0]
    assert torch.equal(found, wanted)
    wanted = shell.shell_query(4, 0.5, 0.0, cloud, end)[0]
    assert torch.equal(shell.shell_query(4, 0.5, 1e-30, cloud, end)[0], wanted)
    with pytest.raises(TypeError, match="min_radius must be a number, got 'a'"):
        shell.shell_query(4, 1.0, "a", cloud, end)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"min_radius must be in \[0, 1.0\), max_radius, got nan"):
        shell.shell_query(4, 1.0, float("nan"), cloud, end)
