"""torchsparse before 1.4: one integer for a stride, floors at every stride, names of that time."""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import sparse3d.compat
import sparse3d.compat.torchsparse_1_2 as ts
import sparse3d.compat.torchsparse_1_4 as later
from sparse3d.compat.torchsparse_1_2.utils import helpers

spf = ts.nn.functional


def sites(rows: int = 70, batch: int = 2) -> torch.Tensor:
    cells = torch.randperm(batch * 512)[:rows]
    return torch.stack([cells // 64 % 8, cells // 8 % 8, cells % 8, cells // 512], 1).int()


def scene(channels: int = 4) -> ts.SparseTensor:
    coords = sites()
    return ts.SparseTensor(torch.randn(len(coords), channels), coords)


@pytest.mark.parametrize("version", ["1.2.0", "1.1.0", "1.0.0"])
def test_names_of_that_time_are_importable(version: str) -> None:
    try:
        assert sparse3d.compat.install(f"torchsparse=={version}") == ["torchsparse"]
        assert importlib.metadata.version("torchsparse") == version
        names: dict[str, Any] = {}
        exec(
            "import torchsparse, torchsparse.nn as spnn, torchsparse.nn.functional as spf\n"
            "from torchsparse.sparse_tensor import SparseTensor\n"
            "from torchsparse.point_tensor import PointTensor\n"
            "from torchsparse.utils.kernel_region import *\n"
            "from torchsparse.utils.helpers import *\n"
            "from torchsparse.utils import sparse_quantize, sparse_collate_fn\n"
            "from torchsparse.utils.kernel import KernelRegion as same\n"
            "made = KernelRegion(2, 4, 1).get_kernel_offset(), same is KernelRegion, torch, np\n",
            names,
        )
        assert names["made"][0].tolist()[1] == [0, 0, 4]
        assert names["made"][1]
    finally:
        sparse3d.compat.uninstall()


@pytest.mark.parametrize(("size", "stride"), [(3, 2), (2, 2), (3, 3), ((3, 1, 3), (2, 1, 2))])
def test_strided_layers_make_floors_whatever_the_kernel(size: Any, stride: Any) -> None:
    x = scene()
    layer = ts.nn.Conv3d(4, 5, size, stride)
    out = layer(x)
    steps = [stride] * 3 if isinstance(stride, int) else list(stride)
    cells = {
        (*((c // s) * s for c, s in zip(place, steps, strict=True)), b)
        for *place, b in x.C.tolist()
    }
    assert len(out.C) == len(cells)
    assert {tuple(row) for row in out.C.tolist()} == cells
    rows = {tuple(site): feats for site, feats in zip(x.C.tolist(), x.F, strict=True)}
    offsets = ts.utils.KernelRegion(size, 1, 1).get_kernel_offset().tolist()
    for site, feats in zip(out.C.tolist(), out.F, strict=True):
        wanted = torch.zeros(5)
        for tap, offset in enumerate(offsets):
            near = (*(c + o for c, o in zip(site, offset, strict=False)), site[3])
            if near in rows:
                wanted = wanted + rows[near] @ layer.kernel[tap]
        torch.testing.assert_close(feats, wanted, rtol=1e-4, atol=1e-5)


def test_a_stride_is_one_integer_and_maps_are_handed_over_by_name() -> None:
    x = scene()
    assert x.s == 1
    x.check()
    assert x.coord_maps[1] is x.C
    down, up = ts.nn.Conv3d(4, 6, 2, 2), ts.nn.Conv3d(6, 3, 2, 2, transpose=True)
    assert up.t
    y = down(x)
    assert y.s == 2
    z = ts.SparseTensor(y.F * 2, y.C, y.s)
    z.coord_maps, z.kernel_maps = y.coord_maps, y.kernel_maps
    back = up(z)
    assert back.s == 1
    assert torch.equal(back.C, x.C)
    joined = ts.cat([back, x])
    assert joined.F.shape == (70, 7)
    assert torch.equal(ts.cat((back, x), 1).F, joined.F)
    assert torch.equal(ts.cat(input_list=[back, x], dim=1).F, joined.F)
    with pytest.raises(ValueError, match="dim must be 1, got 0"):
        ts.cat([back, x], 0)
    assert joined.s == 1
    torch.testing.assert_close(back.F, up(y).F * 2)
    z.s = (2, 1, 1)
    assert z.s == (2, 1, 1)
    assert ts.SparseTensor(x.F, x.C, stride=4).s == ts.SparseTensor(x.F, x.C, 4).s == 4


def test_point_voxel_networks_give_what_version_1_4_gives() -> None:
    """Voxelise, convolve down and up, devoxelise: strides as numbers here and as tuples there."""
    points = torch.cat([torch.rand(150, 3) * 6, torch.randint(0, 2, (150, 1)).float()], 1)
    feats = torch.randn(150, 4)
    layers = [
        ts.nn.Conv3d(4, 4, 3), ts.nn.Conv3d(4, 8, 2, 2), ts.nn.Conv3d(8, 4, 2, 2, transpose=True),
    ]  # fmt: skip

    def run(peer: Any, blocks: list[Any], offsets: Any, unit: Any) -> tuple[torch.Tensor, Any]:
        leaf = feats.clone().requires_grad_()
        functional = peer.nn.functional
        z = peer.PointTensor(leaf, points)
        hashes = functional.sphash(torch.floor(z.C).int())
        kept = torch.unique(hashes)
        rows = functional.sphashquery(hashes, kept)
        counts = functional.spcount(rows.int(), len(kept))
        cells = torch.round(functional.spvoxelize(torch.floor(z.C), rows, counts)).int()
        x = peer.SparseTensor(functional.spvoxelize(z.F, rows, counts), cells)
        x0 = blocks[0](x)
        x2 = peer.cat([blocks[2](blocks[1](x0)), x0])
        step = unit(x2)
        places = torch.cat([torch.floor(z.C[:, :3] / step).int() * step, z.C[:, 3:].int()], 1)
        near = functional.sphashquery(
            functional.sphash(places, offsets(x2)), functional.sphash(x2.C)
        )
        weights = functional.calc_ti_weights(z.C, near, scale=step).transpose(0, 1).contiguous()
        out = functional.spdevoxelize(x2.F, near.transpose(0, 1).contiguous(), weights)
        (grad,) = torch.autograd.grad(out.square().sum(), leaf)
        return out, grad

    others = [
        later.nn.Conv3d(4, 4, 3), later.nn.Conv3d(4, 8, 2, 2),
        later.nn.Conv3d(8, 4, 2, 2, transposed=True),
    ]  # fmt: skip
    for mine, theirs in zip(layers, others, strict=True):
        theirs.load_state_dict(mine.state_dict())
    out, grad = run(
        ts, layers, lambda x: ts.utils.KernelRegion(2, x.s, 1).get_kernel_offset(), lambda x: x.s
    )
    wanted, slope = run(
        later, others, lambda x: later.nn.utils.get_kernel_offsets(2, x.s, 1), lambda x: x.s[0]
    )
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(grad, slope)


def test_points_are_added_and_keep_their_class() -> None:
    z = ts.PointTensor(feat=torch.ones(3, 2), coords=torch.zeros(3, 4))
    z.additional_features["counts"][1] = torch.ones(1)
    total = z + ts.PointTensor(torch.ones(3, 2), z.C)
    assert type(total) is ts.PointTensor
    assert total.F.tolist() == [[2.0, 2.0]] * 3
    assert total.additional_features is z.additional_features


def test_convolution_by_function_with_and_without_a_size() -> None:
    x = scene()
    layer = ts.nn.Conv3d(4, 5, 3, bias=True)
    wanted = layer(x).F
    with_size = spf.conv3d(x, layer.kernel, 3, layer.bias)
    torch.testing.assert_close(with_size.F, wanted)
    torch.testing.assert_close(spf.conv3d(x, layer.kernel, layer.bias).F, wanted)
    matrix = torch.randn(4, 2)
    torch.testing.assert_close(spf.conv3d(x, matrix).F, x.F @ matrix)
    with pytest.raises(ValueError, match="kernel_size must be given where the taps make no cube"):
        spf.conv3d(x, torch.randn(9, 4, 2))


def test_downsampling_gives_multiples_of_the_ratio() -> None:
    coords = sites()
    found = spf.spdownsample(coords, 4)
    wanted = {(*(c // 4 * 4 for c in row[:3]), row[3]) for row in coords.tolist()}
    assert {tuple(row) for row in found.tolist()} == wanted
    assert len(found) == len(wanted)


def test_regions_along_some_axes() -> None:
    region = ts.utils.KernelRegion(3, 2, 1, dim=[0, 2]).get_kernel_offset().tolist()
    assert region == [[x, 0, z] for z, x in itertools.product((-2, 0, 2), repeat=2)]


def test_quantization_by_index_by_cell_and_with_labels() -> None:
    points = np.array([[0.2, 5.0, 1.0], [0.4, 5.1, 1.2], [3.0, 4.0, 1.0], [0.1, 4.0, 2.0]])
    feats, labels = np.arange(8.0).reshape(4, 2), np.array([7, 7, 8, 9])
    index = helpers.sparse_quantize(points)
    assert index.tolist() == [3, 0, 2]
    cells, kept = helpers.sparse_quantize(points, feats)
    assert cells.tolist() == [[0, 0, 1], [0, 1, 0], [3, 0, 0]]
    assert kept.tolist() == feats[index].tolist()
    _, _, merged, inverse = helpers.sparse_quantize(points, feats, labels, return_invs=True)
    assert merged.tolist() == [9, 255, 8]
    assert inverse.tolist() == [1, 1, 2, 0]
    alone = helpers.sparse_quantize(points, feats, labels, return_index=True)
    assert [part.tolist() for part in alone] == [[3, 0, 2], [9, 255, 8]]
    coarse = helpers.sparse_quantize(points, quantization_size=(4.0, 4.0, 4.0))
    assert coarse.tolist() == [0]
    assert helpers.ravel_hash_vec(np.array([[0, 0], [0, 3], [2, 1]])).tolist() == [0, 3, 9]
    with pytest.raises(ValueError, match="hash_type must be 'ravel', got 'fnv'"):
        helpers.sparse_quantize(points, hash_type="fnv")


def test_samples_are_joined_with_the_batch_id_last() -> None:
    coords = [np.array([[1, 2, 3]]), np.array([[4, 5, 6], [7, 8, 9]])]
    feats = [np.ones((1, 2)), np.zeros((2, 2))]
    places, rows, labels = helpers.sparse_collate(coords, feats, [np.array([1]), np.array([2, 3])])
    assert places.tolist() == [[1, 2, 3, 0], [4, 5, 6, 1], [7, 8, 9, 1]]
    assert places.dtype == torch.int32
    assert rows.dtype == torch.float32
    assert labels.tolist() == [1, 2, 3]
    floating, wide = helpers.sparse_collate(coords, feats, is_double=True, coord_float=True)
    assert (floating.dtype, wide.dtype) == (torch.float32, torch.float64)
    samples = [
        {"x": ts.SparseTensor(f, c, 2), "y": np.array([1]), "in": {"n": "a"}}
        for c, f in zip(coords, feats, strict=True)
    ]
    made = helpers.sparse_collate_fn(samples)
    assert made["x"].s == 2
    assert made["x"].C.shape == (3, 4)
    assert made["y"].shape == (2, 1)
    assert made["in"] == {"n": ["a", "a"]}
    first, second = helpers.sparse_collate_fn([(s["x"], "b") for s in samples])
    assert torch.equal(first.C, made["x"].C)
    assert second == ["b", "b"]
    assert helpers.make_list(2).tolist() == [2, 2, 2]
    assert helpers.make_tuple([1, 2, 3]) == (1, 2, 3)
