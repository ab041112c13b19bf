from __future__ import annotations

import pytest
import torch

from sparse3d.pointops import grid_cluster, voxel_grid


def test_ids_are_mixed_radix_first_axis_fastest() -> None:
    pos = torch.tensor([[0.0, 0], [11, 9], [2, 8], [2, 2], [8, 3]])
    assert grid_cluster(pos, torch.tensor([5.0, 5.0])).tolist() == [0, 5, 3, 0, 1]
    start, end = torch.tensor([0.0, 0.0]), torch.tensor([19.0, 19.0])
    assert grid_cluster(pos, torch.tensor([5.0, 5.0]), start, end).tolist() == [0, 6, 4, 0, 1]


def test_voxel_grid_never_mixes_clouds() -> None:
    pos = torch.tensor([[0.0, 0, 0], [0.1, 0, 0], [0, 0, 0], [3, 0, 0]])
    ids = voxel_grid(pos, 1.0, torch.tensor([0, 0, 1, 1]))
    assert ids[0] == ids[1]
    assert len(set(ids.tolist())) == 3
    assert voxel_grid(pos, [1.0, 1.0, 1.0]).tolist() == [0, 0, 0, 3]
    assert voxel_grid(pos[:0], 1.0).tolist() == []


def test_bad_input() -> None:
    pos = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="size must be finite and > 0"):
        grid_cluster(pos, 0.0)
    with pytest.raises(ValueError, match="size must be of 3 entries"):
        grid_cluster(pos, torch.ones(2))
    with pytest.raises(ValueError, match="fewer than 2\\^63 cells"):
        grid_cluster(torch.tensor([[0.0, 0, 0], [1e8, 1e8, 1e8]]), 1.0)


def test_whole_positions(backend: str) -> None:
    pos = torch.tensor([[0, 0], [11, 9], [2, 8], [2, 2], [8, 3]])
    assert grid_cluster(pos, 5).tolist() == [0, 5, 3, 0, 1]
    far = grid_cluster(pos.int(), torch.tensor([5, 5]), end=torch.tensor([19, 19]))
    assert far.tolist() == [0, 6, 4, 0, 1]
    assert grid_cluster(torch.tensor([2, 6]), 5, start=0).tolist() == [0, 1]
    large = torch.tensor([2**53, 2**53 + 1])  # no float64 tells them apart
    assert grid_cluster(large, 1).tolist() == [0, 1]
    assert voxel_grid(pos, 5, torch.tensor([0, 0, 0, 1, 1])).tolist() == [0, 5, 3, 6, 7]
    with pytest.raises(TypeError, match="size must be of whole numbers as pos is"):
        grid_cluster(pos, 0.5)
    with pytest.raises(ValueError, match=r"pos must be of shape \(N, D\)"):
        grid_cluster(pos[None], 1)
