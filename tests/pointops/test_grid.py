from __future__ import annotations

import pytest
import torch

from sparse3d.pointops import grid_cluster, voxel_grid
from sparse3d.pointops.voxel import voxel_downsample, voxelize


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


def test_clouds_by_bounds(backend: str) -> None:
    pos, batch = torch.rand(9, 3) * 4, torch.tensor([0, 0, 0, 2, 2, 2, 2, 3, 3])
    for ptr in ([0, 3, 3, 7, 9], torch.tensor([0, 3, 3, 7, 9], dtype=torch.int32)):
        assert torch.equal(voxel_grid(pos, 1.0, ptr=ptr), voxel_grid(pos, 1.0, batch))
        mine, theirs = voxelize(pos, 1.0, ptr=ptr), voxelize(pos, 1.0, batch)
        assert torch.equal(mine.inverse, theirs.inverse)
        assert torch.equal(mine.batch, theirs.batch)
        means = voxel_downsample(pos, 1.0, features=pos, ptr=ptr).features
        assert torch.equal(means, voxel_downsample(pos, 1.0, batch, pos).features)
    for run in (voxel_grid, voxelize):
        with pytest.raises(ValueError, match="ptr must be None where batch is given, got both"):
            run(pos, 1.0, batch, ptr=[0, 9])
        with pytest.raises(ValueError, match="ptr must be ascending, start at 0 and end at 9"):
            run(pos, 1.0, ptr=[0, 8])


def test_cells_are_cut_towards_zero() -> None:
    """As torch_cluster does: points just below the start share the first cell."""
    pos = torch.tensor([[-0.75], [0.75], [-1.25], [3.0]])
    assert grid_cluster(pos, 1.0, 0.0, 3.0).tolist() == [0, 0, -1, 3]
    whole = torch.tensor([[-3], [3], [-5], [12]])
    assert grid_cluster(whole, 4, 0, 12).tolist() == [0, 0, -1, 3]


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_batch_ids_stay_whole_numbers(backend: str, dtype: torch.dtype) -> None:
    clouds = torch.arange(300)
    for ids in (clouds, clouds.int(), clouds + 70_000, clouds + 2**24):
        found = voxel_grid(torch.zeros(300, 3, dtype=dtype), 1.0, ids)
        assert found.tolist() == ids.tolist()
    pos = torch.tensor([[0.0], [3.0], [0.0]], dtype=dtype)
    assert voxel_grid(pos, 1.0, torch.tensor([0, 0, 2])).tolist() == [0, 3, 8]
    assert voxel_grid(pos, 1.0, torch.tensor([0, 0, 2]), 0.0, 4.0).tolist() == [0, 3, 10]


def test_bad_batch_ids(backend: str) -> None:
    pos = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="batch must be >= 0, got -1"):
        voxel_grid(pos, 1.0, torch.tensor([-1, 0]))
    with pytest.raises(ValueError, match="fewer than 2\\^63 cells"):
        voxel_grid(pos, 1.0, torch.tensor([0, 2**62]), 0.0, 4.0)
    with pytest.raises(TypeError, match="batch must be int64 or int32"):
        voxel_grid(pos, 1.0, torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_positions_are_divided_in_float32(backend: str, dtype: torch.dtype) -> None:
    pos = torch.tensor([0.0, 60_000.0], dtype=dtype)
    assert grid_cluster(pos, 0.5).tolist() == [0, int(float(pos[1]) / 0.5)]
    many = (torch.rand(500, 3) * 300).to(dtype)
    size = [0.1, 0.25, torch.tensor(0.3).item()]
    assert torch.equal(grid_cluster(many, size), grid_cluster(many.float(), size))
    cells = voxelize(many, 0.1, start=0.0).voxel_coords
    assert torch.equal(cells, voxelize(many.float(), 0.1, start=0.0).voxel_coords)


def test_cells_that_no_id_holds(backend: str) -> None:
    for pos in ([[0.0], [3e38]], [[-3e38], [3e38]], [[0.0], [1e19]]):
        with pytest.raises(ValueError, match="fewer than 2\\^63 cells"):
            grid_cluster(torch.tensor(pos), 0.5)
    with pytest.raises(ValueError, match="fewer than 2\\^63 cells"):
        grid_cluster(torch.tensor([[0.0], [1e30]]), 1.0, 0.0, 10.0)  # a point far past the end
    with pytest.raises(ValueError, match="fewer than 2\\^63 cells"):
        grid_cluster(torch.tensor([-(2**63), 2**63 - 1]), 1)
    with pytest.raises(ValueError, match="fewer than 2\\^63 cells"):
        grid_cluster(torch.tensor([[-3e38], [3e38]]), 1e30)  # float32 holds no such difference
    assert grid_cluster(torch.tensor([[0.0], [1e20]]), 1e10).tolist() == [0, 10**10]
    assert grid_cluster(torch.tensor([0, 2**62]), 2**60).tolist() == [0, 4]
