from __future__ import annotations

import numpy as np
import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import padded

FIRST, SECOND = torch.tensor([20, 5, 0]), torch.tensor([30, 2, 9])


def _pair(shape: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Two padded batches whose padding is not a number."""
    clouds = []
    for size, lengths in ((20, FIRST), (30, SECOND)):
        batch = torch.stack([make_cloud(shape, size, seed) for seed in range(3)])
        for row, length in enumerate(lengths.tolist()):
            batch[row, length:] = torch.nan
        clouds.append(batch)
    return clouds[0], clouds[1]


@pytest.mark.parametrize("norm", [1, 2])
def test_nearest_points(backend: str, shape: str, norm: int) -> None:
    p1, p2 = _pair(shape)
    distance, index = padded.knn_points(p1, p2, FIRST, SECOND, norm, 4)
    for b, (queries, points) in enumerate(zip(FIRST.tolist(), SECOND.tolist(), strict=True)):
        if not queries:
            continue
        table = oracle.distances32(p1[b, :queries], p2[b, :points], norm)
        order = np.argsort(table, 1, kind="stable")[:, :4]
        few = order.shape[1]
        assert np.array_equal(index[b, :queries, :few].numpy(), order)
        kept = np.take_along_axis(table, order, 1)
        assert np.array_equal(distance[b, :queries, :few].numpy(), kept)
        assert not index[b, :, few:].any()
        assert not distance[b, :, few:].any()


def test_points_within_a_radius(backend: str, shape: str) -> None:
    p1, p2 = _pair(shape)
    radius = oracle.RADII[shape] * 2
    distance, index = padded.ball_query(p1, p2, FIRST, SECOND, 6, radius)
    for b, (queries, points) in enumerate(zip(FIRST.tolist(), SECOND.tolist(), strict=True)):
        if queries:
            wanted = oracle.ball(p1[b, :queries], p2[b, :points], radius, 6)
            assert np.array_equal(index[b, :queries].numpy(), wanted)
    assert not distance[index < 0].any()


def test_farthest_points(backend: str, shape: str) -> None:
    points = _pair(shape)[1]
    index = padded.sample_farthest_points(points, SECOND, [5, 6, 3])
    assert index.shape == (3, 6)
    for b, (size, taken) in enumerate(((30, 5), (2, 2), (9, 3))):
        wanted = oracle.fps(points[b, :size], taken, stay=True)
        assert index[b].tolist() == wanted + [-1] * (6 - taken)
    torch.manual_seed(3)
    starts = {int(padded.sample_farthest_points(points, SECOND, 1, True)[0, 0]) for _ in range(20)}
    assert len(starts) > 5


def test_rows_of_each_cloud(backend: str) -> None:
    points = torch.rand(2, 5, 4)
    index = torch.tensor([[[0, 4], [-1, 2]], [[3, 3], [1, -1]]])
    rows = padded.masked_gather(points, index)
    gathered = padded.knn_gather(points, index.clamp_min(0), torch.tensor([5, 1]))
    for b, m, k in np.ndindex(2, 2, 2):
        at = int(index[b, m, k])
        assert rows[b, m, k].tolist() == (points[b, at].tolist() if at >= 0 else [0.0] * 4)
        valid = k < (5, 1)[b]
        assert gathered[b, m, k].tolist() == (
            points[b, max(at, 0)].tolist() if valid else [0.0] * 4
        )
    assert torch.equal(padded.masked_gather(points, index[:, 0]), rows[:, 0])
    assert padded.masked_gather(points[:, :0], index[:, :, :1] * 0 - 1).shape == (2, 2, 1, 4)


def test_gradients() -> None:
    wide = {"dtype": torch.float64, "requires_grad": True}
    p1, p2 = torch.rand(2, 4, 3, **wide), torch.rand(2, 6, 3, **wide)
    lengths = torch.tensor([6, 2])
    index = torch.tensor([[0, 5, 5, -1], [1, 1, -1, 0]])
    for norm in (1, 2):
        assert torch.autograd.gradcheck(
            lambda a, b, norm=norm: padded.knn_points(a, b, None, lengths, norm, 3)[0], (p1, p2)
        )
    assert torch.autograd.gradcheck(
        lambda a, b: padded.ball_query(a, b, None, lengths, 3, 0.7)[0], (p1, p2)
    )
    assert torch.autograd.gradcheck(lambda p: padded.masked_gather(p, index), (p2,))
    near = index.clamp_min(0)[:, :, None].expand(2, 4, 3)
    assert torch.autograd.gradcheck(lambda p: padded.knn_gather(p, near, lengths), (p2,))


def test_bad_input(backend: str) -> None:
    points = torch.zeros(2, 4, 3)
    with pytest.raises(ValueError, match="norm must be 1 or 2, got 3"):
        padded.knn_points(points, points, norm=3)
    with pytest.raises(ValueError, match=r"lengths2 must be in \[0, 4\]"):
        padded.ball_query(points, points, lengths2=torch.tensor([5, 1]))
    with pytest.raises(ValueError, match="K must be one number or 2, one a cloud, got 3"):
        padded.sample_farthest_points(points, K=[1, 2, 3])
    with pytest.raises(ValueError, match="K must be >= 0, got -1"):
        padded.sample_farthest_points(points, K=-1)
    for broken in (2.5, True, None, [1, 2.5], torch.tensor(1.5), torch.tensor([True, False])):
        with pytest.raises(TypeError, match=r"^K must be "):
            padded.sample_farthest_points(points, K=broken)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"idx must be in \[-1, 4\), got 4"):
        padded.masked_gather(points, torch.full((2, 1), 4))
    with pytest.raises(ValueError, match=r"idx must be of shape \(N, K\) or \(N, M, K\)"):
        padded.masked_gather(points, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="idx must be of batch size 2 as x has, got 1"):
        padded.knn_gather(points, torch.zeros(1, 1, 1, dtype=torch.int64))
