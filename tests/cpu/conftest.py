"""Scenes and comparisons for the CPU kernels; the torch references are the definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from sparse3d import _registry

reason = _registry.load("cpu")
if reason is not None:
    collect_ignore_glob = ["test_*.py"]


def make_scene(
    rows: int, ndim: int, *, low: int = -5, high: int = 6, batches: int = 2, distinct: bool = True
) -> torch.Tensor:
    """Random rows in a box around 0, batches mixed; the first occurrence order is kept."""
    generator = torch.Generator().manual_seed(1000 * ndim + rows)
    batch = torch.randint(0, batches, (rows, 1), generator=generator)
    sites = torch.randint(low, high, (rows, ndim), generator=generator)
    coords = torch.cat([batch, sites], 1).int()
    if not distinct:
        return coords
    seen: dict[tuple[int, ...], int] = {}
    for row, site in enumerate(coords.tolist()):
        seen.setdefault(tuple(site), row)
    return coords[list(seen.values())]


@pytest.fixture(scope="session")
def scene() -> Callable[..., torch.Tensor]:
    return make_scene


def _both(op: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    with _registry.force("cpu"), _registry.strict():
        got = op(*args)
    with _registry.force("reference"):
        return got, op(*args)


@pytest.fixture(scope="session")
def both() -> Callable[..., tuple[Any, Any]]:
    """Result of an operator by the CPU kernel and by the reference."""
    return _both


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small cases: threads cost the references more than they give."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def each_thread_count() -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Asserts that a call gives the same bytes on 1, 2, 3 and 8 threads."""
    before = torch.get_num_threads()

    def check(run: Callable[[], Any]) -> None:
        first: list[torch.Tensor] | None = None
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            result = run()
            tensors = list(result) if isinstance(result, (tuple, list)) else [result]
            first = first or tensors
            for now, then in zip(tensors, first, strict=True):
                assert now.shape == then.shape
                assert torch.equal(_bytes(now), _bytes(then)), threads

    yield check
    torch.set_num_threads(before)
