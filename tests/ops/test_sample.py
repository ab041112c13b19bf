"""Samples of a grid against loops over sites."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from sparse3d.ops.sample import sample_grid


def scene(axes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(axes)
    cells = torch.tensor(list(itertools.product(range(2), *[range(4)] * axes)), dtype=torch.int32)
    coords = cells[torch.randperm(len(cells), generator=generator)[: len(cells) * 2 // 3]]
    features = torch.rand((len(coords), 3), generator=generator, dtype=torch.float64)
    points = torch.rand((2, 15, axes), generator=generator, dtype=torch.float64) * 6 - 1
    return features, coords.contiguous(), points


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("mode", ["nearest", "trilinear"])
def test_points_see_the_sites_around(axes: int, mode: str) -> None:
    features, coords, points = scene(axes)
    known = {tuple(site): row for site, row in zip(coords.tolist(), features, strict=True)}
    found = sample_grid(features, coords, points, mode)
    assert found.shape == (2, 15, 3)
    for batch, place in itertools.product(range(2), range(15)):
        at = points[batch, place].tolist()
        if mode == "nearest":
            total = known.get((batch, *(math.floor(p) for p in at)), torch.zeros(3).double())
        else:
            total, share = torch.zeros(3).double(), 0.0
            for corner in itertools.product((0, 1), repeat=axes):
                site = [math.floor(p - 0.5) + c for p, c in zip(at, corner, strict=True)]
                gaps = [abs(p - 0.5 - c) for p, c in zip(at, site, strict=True)]
                weight = math.prod(1 - gap for gap in gaps)
                if (batch, *site) in known:
                    total, share = total + weight * known[(batch, *site)], share + weight
            total = total / share if share else total
        torch.testing.assert_close(found[batch, place], total)


def test_gradients_reach_the_features() -> None:
    features, coords, points = scene(2)
    assert torch.autograd.gradcheck(
        lambda rows: sample_grid(rows, coords, points), (features.requires_grad_(),)
    )


def test_what_does_not_fit_is_refused() -> None:
    features, coords, points = scene(2)
    with pytest.raises(ValueError, match=r"points must be of shape \[B, L, 2\], got \[2, 15, 1\]"):
        sample_grid(features, coords, points[..., :1])
    with pytest.raises(ValueError, match="mode must be 'nearest' or 'trilinear', got 'cubic'"):
        sample_grid(features, coords, points, "cubic")
