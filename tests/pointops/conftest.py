"""Clouds that are hard in different ways, and every backend that works here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sparse3d import _registry

SHAPES = ("uniform", "clustered", "planar", "duplicated", "line", "lattice", "lidar")


def make_cloud(shape: str, rows: int, seed: int = 0) -> torch.Tensor:
    """[rows, 3] float32 points of one kind, always the same for a seed."""
    draw = torch.Generator().manual_seed(seed * 97 + SHAPES.index(shape))
    uniform = torch.rand(rows, 3, generator=draw)
    if shape == "uniform":
        return uniform * 4 - 2
    if shape == "clustered":
        centres = torch.rand(5, 3, generator=draw) * 100
        pick = torch.randint(5, (rows,), generator=draw)
        return centres[pick] + 0.01 * torch.randn(rows, 3, generator=draw)
    if shape == "planar":
        return uniform * torch.tensor([10.0, 10.0, 0.0]) + torch.tensor([0.0, 0.0, 7.0])
    if shape == "duplicated":
        return uniform[torch.randint(max(rows // 4, 1), (rows,), generator=draw)]
    if shape == "line":
        return uniform[:, :1] * torch.tensor([30.0, 1.0, -2.0])
    if shape == "lattice":
        return torch.randint(0, 6, (rows, 3), generator=draw).float()
    angle, ring = uniform[:, 0] * 6.2831853, (uniform[:, 1] * 32).floor() + 2
    reach = ring * ring * 0.08
    return torch.stack([reach * angle.cos(), reach * angle.sin(), uniform[:, 2] * 0.1], 1)


@pytest.fixture(params=SHAPES)
def shape(request: pytest.FixtureRequest) -> str:
    """One kind of cloud at a time."""
    return str(request.param)


@pytest.fixture(params=["reference", "cpu", "metal"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every backend, forced; one that cannot work here is skipped with its own reason."""
    name = str(request.param)
    if name != "reference":
        reason = _registry.load(name)
        if reason is not None:
            pytest.skip(f"backend {name}: {reason}")
    with _registry.force(name):
        yield name
