from __future__ import annotations

import numpy as np
import point_oracle as oracle
import pytest
import torch
from point_oracle import make_cloud

from sparse3d.pointops import pointcept

OFFSET = torch.tensor([40, 40, 42, 100], dtype=torch.int32)


def test_knn_query_pads_and_stays_in_its_cloud(backend: str, shape: str) -> None:
    cloud = make_cloud(shape, 100)
    index, distance = pointcept.knn_query(3, cloud, OFFSET)
    assert index.dtype == torch.int32
    for first, last in ((0, 40), (42, 100)):
        wanted = oracle.knn(cloud[first:last], cloud[first:last], 3) + first
        assert np.array_equal(index[first:last].numpy(), wanted)
    assert index[40:42, 2].tolist() == [-1, -1]
    assert distance[40:42, 2].tolist() == [1e5, 1e5]


def test_sampling_takes_ties_as_the_reduction_does(backend: str, shape: str) -> None:
    cloud = make_cloud(shape, 100)
    taken = pointcept.farthest_point_sampling(cloud, OFFSET, torch.tensor([10, 10, 11, 30]))
    assert taken[:10].tolist() == oracle.fps(cloud[:40], 10, stay=True, slots=32)
    assert taken[10].item() == 40
    wanted = [i + 42 for i in oracle.fps(cloud[42:], 19, stay=True, slots=32)]
    assert taken[11:].tolist() == wanted


def test_ties_of_a_large_cloud_are_those_of_1024_threads(backend: str) -> None:
    cloud = oracle.tied_cloud(1024)
    end, samples = torch.tensor([len(cloud)]), torch.tensor([20])
    taken = pointcept.farthest_point_sampling(cloud, end, samples).tolist()
    assert taken == oracle.fps(cloud, 20, stay=True, slots=1024)
    for other in (512, 2048):
        assert taken != oracle.fps(cloud, 20, stay=True, slots=other)


def test_grouping_and_interpolation_have_gradients() -> None:
    cloud = torch.rand(12, 3, dtype=torch.float64)
    feat = torch.rand(12, 2, dtype=torch.float64, requires_grad=True)
    offset, new_offset = torch.tensor([2, 12]), torch.tensor([1, 4])
    centres = torch.rand(4, 3, dtype=torch.float64)
    index, _ = pointcept.knn_query(3, cloud, offset, centres, new_offset)
    assert (index < 0).any()
    for run in (
        lambda f: pointcept.grouping(index, f, cloud, centres, with_xyz=True),
        lambda f: pointcept.interpolation(cloud, centres, f, offset, new_offset),
    ):
        assert torch.autograd.gradcheck(run, (feat,))


def test_offsets_and_batch_vectors() -> None:
    batch = pointcept.offset2batch(OFFSET)
    assert torch.bincount(batch, minlength=4).tolist() == [40, 0, 2, 58]
    assert torch.equal(pointcept.batch2offset(batch), OFFSET)


def test_dilation_spreads_over_small_clouds(backend: str) -> None:
    cloud = make_cloud("uniform", 100)
    every, _ = pointcept.knn_query(13, cloud, OFFSET)
    index = pointcept.dilated_knn_query(7, 1, cloud, OFFSET, cloud, OFFSET)
    assert torch.equal(index[:40], every[:40, ::2])
    assert torch.equal(index[42:], every[42:, ::2])
    # Two points for seven places: int(i * ((2 - 1) / (7 - 1) - 1 + 1)).
    assert torch.equal(index[40:42], every[40:42, [0, 0, 0, 0, 0, 0, 0]])
    five = torch.tensor([5])
    few = pointcept.dilated_knn_query(4, 3, cloud[:5], five, cloud[:5], five)
    assert torch.equal(few, pointcept.knn_query(5, cloud[:5], five)[0][:, [0, 1, 2, 4]])


def test_soft_interpolation_has_gradients_to_positions(backend: str) -> None:
    cloud, feat = torch.rand(30, 3), torch.rand(30, 2)
    centres, ends, few = torch.rand(7, 3), torch.tensor([28, 30]), torch.tensor([5, 7])
    index, _ = pointcept.knn_query(3, cloud, ends, centres, few)
    found = pointcept.interpolation(cloud, centres, feat, ends, few, soft=True)
    for row, places in enumerate(index.tolist()):
        near = [place for place in places if place >= 0]
        apart = ((centres[row] - cloud[near]).square().sum(1) + 1e-8).sqrt()
        weight = 1 / (apart + 1e-8)
        wanted = (feat[near] * (weight / weight.sum())[:, None]).sum(0)
        assert torch.allclose(found[row], wanted, rtol=1e-5)
    wide = [part.double().requires_grad_() for part in (cloud, centres, feat)]
    assert torch.autograd.gradcheck(
        lambda c, q, f: pointcept.interpolation(c, q, f, ends, few, soft=True), wide
    )


def test_ends_of_divided_clouds() -> None:
    ends = pointcept.divided_ends(OFFSET, 4)
    assert ends.dtype == torch.int32
    assert ends.tolist() == [10, 10, 10, 24]
    with pytest.raises(ValueError, match="scale must be >= 1"):
        pointcept.divided_ends(OFFSET, 0)


def test_bad_input(backend: str) -> None:
    cloud = torch.zeros(4, 3)
    with pytest.raises(ValueError, match="offset must be ascending and end at 4"):
        pointcept.knn_query(1, cloud, torch.tensor([3]))
    with pytest.raises(ValueError, match="new_offset must be of 1 entries"):
        pointcept.knn_query(1, cloud, torch.tensor([4]), cloud, torch.tensor([2, 4]))
    with pytest.raises(ValueError, match="new_offset must be ascending with 1 entries"):
        pointcept.farthest_point_sampling(cloud, torch.tensor([4]), torch.tensor([2, 4]))
    with pytest.raises(ValueError, match="without points of an empty cloud"):
        pointcept.farthest_point_sampling(cloud, torch.tensor([0, 4]), torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="nsample and offset must be given"):
        pointcept.knn_query_and_group(cloud, cloud)
    with pytest.raises(ValueError, match=r"idx must be in \[-1, 4\)"):
        pointcept.grouping(torch.tensor([[4]]), cloud, cloud)
