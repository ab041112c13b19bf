from __future__ import annotations

import numpy as np
import torch

from sparse3d.pointops.voxel import voxel_downsample, voxelize


def test_voxelize_rows_ascend_and_maps_agree() -> None:
    pos = torch.rand(300, 3) * 4 - 2
    batch = torch.repeat_interleave(torch.arange(3), 100)
    voxels = voxelize(pos, 0.5, batch, start=-2.0)
    keys = torch.cat([batch[:, None], ((pos + 2) / 0.5).floor().long()], 1)
    rows = torch.cat([voxels.batch[:, None], voxels.voxel_coords], 1)
    assert np.array_equal(rows.numpy(), np.unique(keys.numpy(), axis=0))
    assert torch.equal(rows[voxels.inverse], keys)
    for row in range(rows.shape[0]):
        members = voxels.point_order[voxels.ptr[row] : voxels.ptr[row + 1]]
        assert torch.equal(members, (voxels.inverse == row).nonzero()[:, 0])


def test_downsample_means_and_gradients() -> None:
    pos = torch.rand(40, 3, dtype=torch.float64, requires_grad=True)
    features = torch.rand(40, 2, dtype=torch.float64, requires_grad=True)
    down = voxel_downsample(pos, 0.5, None, features, start=0.0)
    for row in range(down.pos.shape[0]):
        mine = down.voxels.inverse == row
        assert torch.allclose(down.pos[row], pos[mine].mean(0))
        assert torch.allclose(down.features[row], features[mine].mean(0))
    assert torch.autograd.gradcheck(
        lambda p, f: voxel_downsample(p, 0.5, None, f, start=0.0, feature_reduce="sum").features,
        (pos, features),
    )


def test_half_means_of_crowded_voxels() -> None:
    pos = torch.full((3000, 3), 30.0, dtype=torch.float16)
    down = voxel_downsample(pos, 1.0, features=pos, start=0.0)
    assert down.pos.tolist() == [[30.0] * 3]
    assert down.features.tolist() == [[30.0] * 3]
