"""Reports about tensors: rows 13, 16, 17, 19."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reports.sites import DIMS, cloud, layer, rows
from tolerance import assert_close, assert_same
from torch import nn

import sparse3d.compat.minkowski as ME
import sparse3d.compat.spconv.pytorch as spconv
import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, add, cat, collate, devoxelize, voxelize
from sparse3d.compat import torchsparse
from sparse3d.ops.dense import to_dense

BAD = [
    ((0, 3, 10, 2), r"column 2 \(axis 1\) must be in \[0, 10\), got 10"),
    ((0, 3, 2, -1), r"column 3 \(axis 2\) must be in \[0, 10\), got -1"),
    ((-1, 3, 2, 2), r"column 0 \(batch id\) must be in \[0, 2\), got -1"),
    ((2, 3, 2, 2), r"column 0 \(batch id\) must be in \[0, 2\), got 2"),
]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("site", "message"), BAD)
def test_row_13_bad_index_is_named(
    engine: str, site: tuple[int, ...], message: str, dtype: torch.dtype
) -> None:
    indices = rows([0, 0, 0, 0], site, [1, 9, 9, 9]).to(dtype)
    with pytest.raises(ValueError, match=message):
        SparseConvTensor(torch.ones(3, 2), indices, [10, 10, 10], 2)
    unchecked = SparseConvTensor(torch.ones(3, 2), indices, [10, 10, 10], 2, check=False)
    with pytest.raises(ValueError, match=r"must be in \[0, |must lie in|outside"):
        unchecked.dense()


@pytest.mark.parametrize("ndim", DIMS)
def test_row_13_every_column_and_every_way_in(engine: str, ndim: int) -> None:
    good = rows([0] * (ndim + 1), [1] * (ndim + 1))
    for column in range(ndim + 1):
        for value in (-1, 10 if column else 2, 2**31 - 1, -(2**31)):
            bad = good.clone()
            bad[1, column] = value
            message = rf"column {column} .*got {value}"
            with pytest.raises(ValueError, match=message):
                SparseConvTensor(torch.ones(2, 1), bad, [10] * ndim, 2)
            x = SparseConvTensor(torch.ones(2, 1), good.clone(), [10] * ndim, 2)
            conv = layer("SubMConv", ndim, 1, 1, 3)
            conv(x)
            assigned = SparseConvTensor(torch.ones(2, 1), good.clone(), [10] * ndim, 2)
            assigned.indices = bad
            x.indices[1, column] = value  # an edit in place is noticed too
            for changed in (assigned, x):
                with pytest.raises(ValueError, match=message):
                    conv(changed)
                with pytest.raises(ValueError, match=message):
                    layer("SparseMaxPool", ndim, 2)(changed)
            peers = spconv.SparseConvTensor(torch.ones(2, 1), bad, [10] * ndim, 2)
            with pytest.raises(ValueError, match=message):
                getattr(spconv, f"SubMConv{ndim}d")(1, 1, 3)(peers)
            with pytest.raises(ValueError, match=message):
                spconv.SparseGlobalMaxPool()(peers)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**40])
def test_row_13_what_int32_does_not_hold_is_refused_not_wrapped(value: int) -> None:
    wide = torch.tensor([[0, 0, 0, 0], [0, 1, value, 1]])
    for make in (
        lambda: SparseConvTensor(torch.ones(2, 1), wide, None, 1),
        lambda: spconv.SparseConvTensor(torch.ones(2, 1), wide, [10] * 3, 1),
        lambda: ME.SparseTensor(torch.ones(2, 1), coordinates=wide),
        lambda: ME.utils.sparse_quantize(wide[:, 1:]),
        lambda: ME.utils.batched_coordinates([wide[:, 1:]]),
        lambda: torchsparse.nn.Conv3d(1, 1, 3)(torchsparse.SparseTensor(torch.ones(2, 1), wide)),
        lambda: torchsparse.utils.quantize.sparse_quantize(wide[:, 1:].numpy()),
    ):
        with pytest.raises(ValueError, match=r"within int32, got"):
            make()


CONVS: dict[str, Any] = {
    "submanifold": lambda: spnn.SubMConv3d(4, 4, 3),
    "pointwise": lambda: spnn.SubMConv3d(4, 4, 1),
    "strided": lambda: spnn.SparseConv3d(4, 4, 2, 2),
    "transposed": lambda: spnn.SparseConvTranspose3d(4, 4, 2, 2),
    "inverse": lambda: spnn.SparseInverseConv3d(4, 4, 3, "k"),
}


@pytest.mark.parametrize("kind", CONVS)
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    ("features", "weight"),
    [
        (torch.float16, torch.float32),
        (torch.float64, torch.float32),
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float64),
    ],
)
def test_row_16_mixed_dtypes_name_both_and_the_cure(
    engine: str, kind: str, grad: bool, features: torch.dtype, weight: torch.dtype
) -> None:
    before = spnn.SparseConv3d(4, 4, 3, 2, 1, indice_key="k").to(features)
    x, conv = before(cloud(3, dtype=features)), CONVS[kind]().to(weight)
    message = rf"must be of one dtype, got {features} and {weight}; convert one .*autocast"
    with torch.set_grad_enabled(grad), pytest.raises(TypeError, match=message):
        conv(x)


@pytest.mark.parametrize("kind", CONVS)
def test_row_16_float64_works_and_is_float64(engine: str, kind: str) -> None:
    before = spnn.SparseConv3d(4, 4, 3, 2, 1, indice_key="k").double()
    conv, x = CONVS[kind]().double(), before(cloud(3, dtype=torch.float64))
    wide = conv(x).features
    assert wide.dtype == torch.float64
    narrow = conv.float()(x.replace_feature(x.features.float())).features
    assert_close(narrow, wide, torch.float32)
    assert not torch.equal(narrow.double(), wide)  # computed at its own precision
    wide.sum().backward()
    assert conv.weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool])
def test_row_16_integer_features(dtype: torch.dtype) -> None:
    features, sites = torch.ones(2, 3, dtype=dtype), rows([0, 1, 2, 3], [0, 2, 3, 4])
    message = rf"must be float32, float16, bfloat16 or float64, got {dtype}; convert with .float"
    with pytest.raises(TypeError, match=message):
        SparseConvTensor(features, sites, [5, 5, 5], 1)
    # The stand-in holds labels and masks, as spconv does; its layers refuse them.
    held = spconv.SparseConvTensor(features, sites, [5, 5, 5], 1)
    for module in (
        spconv.SubMConv3d(3, 2, 3),
        spconv.SparseConv3d(3, 2, 1),
        spconv.SparseMaxPool3d(2),
    ):
        with pytest.raises(TypeError, match=message):
            module(held)
    x = SparseConvTensor(features.float(), sites, [5, 5, 5], 1)
    with pytest.raises(TypeError, match=message):
        x.replace_feature(features)
    with pytest.raises(TypeError, match=message):
        voxelize(features, sites)
    with pytest.raises(TypeError, match=message):
        devoxelize(features, torch.zeros(2, dtype=torch.int64))


def test_row_16_half_under_autocast(engine: str) -> None:
    x, conv = cloud(3), spnn.SubMConv3d(4, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        out = conv(x).features
    assert out.dtype == torch.bfloat16


def _nothing(ndim: int, channels: int, batch: int = 3, grid: bool = True) -> SparseConvTensor:
    features = torch.zeros(0, channels, requires_grad=True)
    shape = [8] * ndim if grid else None
    return SparseConvTensor(features, torch.zeros(0, ndim + 1, dtype=torch.int32), shape, batch)


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("ndim", DIMS)
def test_row_17_every_layer_without_voxels(engine: str, ndim: int, grid: bool) -> None:
    net = nn.ModuleList([
        layer("SubMConv", ndim, 4, 6, 3, indice_key="s"),
        spnn.SparseBatchNorm(6),
        spnn.SparseReLU(),
        layer("SparseConv", ndim, 6, 5, 3, 2, 1, indice_key="d"),
        layer("SparseMaxPool", ndim, 2, indice_key="p"),
        layer("SparseInverseConv", ndim, 5, 5, 2, "p"),
        layer("SparseInverseConv", ndim, 5, 4, 3, "d"),
        layer("SubMConv", ndim, 4, 4, 1),
        layer("SparseConvTranspose", ndim, 4, 3, 2, 2),
        layer("SparseAvgPool", ndim, 2),
        layer("SubMConv", ndim, 3, 7, 3, groups=1),
    ])  # fmt: skip
    for training in (False, True):
        net.train(training)
        x = out = _nothing(ndim, 4, grid=grid)
        for made in net:
            out = made(out)
            assert out.indices.shape == (0, ndim + 1)
            assert out.features.shape[0] == 0
        assert out.features.shape == (0, 7)
        assert spnn.SparseGlobalAvgPool()(out).tolist() == [[0.0] * 7] * 3
        assert spnn.SparseGlobalMaxPool()(out).tolist() == [[0.0] * 7] * 3
        if grid:
            dense = out.dense()
            assert dense.shape == (3, 7, *[8] * ndim)
            assert not dense.any()
        net.zero_grad()
        out.features.sum().backward()
        for parameter in net.parameters():
            assert parameter.grad is not None
            assert not parameter.grad.any()
        assert x.features.grad is not None
        assert x.features.grad.shape == (0, 4)
        assert all(torch.isfinite(value).all() for value in net.state_dict().values())


@pytest.mark.parametrize("ndim", DIMS)
def test_row_17_every_function_without_voxels(engine: str, ndim: int) -> None:
    x = _nothing(ndim, 4)
    one = cloud(ndim, side=8, batch=3, share=0.01)
    assert len(add(x, x)) == len(cat(x, x)) == len(x.coalesce()) == 0
    assert torch.equal(add(x, one).dense(), one.dense())
    assert cat(x, one).features.shape == (len(one), 8)
    assert collate([x, one, x]).batch_size == 9
    none = torch.zeros(len(one), dtype=torch.bool)
    pruned = layer("SubMConv", ndim, 4, 2, 3)(one.select_by_index(none))
    assert pruned.features.shape == (0, 2)
    voxels = voxelize(x.features, x.indices)
    assert [len(part) for part in voxels] == [0, 0, 0, 0]
    points = torch.zeros(2, ndim + 1)
    assert not devoxelize(x.features, coords=x.indices, points=points).any()
    assert to_dense(x.features, x.indices, [2] * ndim, 1).shape == (1, *[2] * ndim, 4)
    zero = SparseConvTensor.from_dense(torch.zeros(2, *[3] * ndim, 4))
    assert zero.features.shape == (0, 4)


def test_row_17_stand_ins(engine: str) -> None:
    features, sites = torch.zeros(0, 4, requires_grad=True), torch.zeros(0, 4, dtype=torch.int32)
    peer = spconv.SparseConvTensor(features, sites, [8, 8, 8], 2)
    out = spconv.SparseSequential(
        spconv.SubMConv3d(4, 6, 3),
        nn.BatchNorm1d(6).eval(),
        nn.ReLU(),
        spconv.SparseConv3d(6, 5, 3, 2, indice_key="d"),
        spconv.SparseInverseConv3d(5, 3, 3, "d"),
        spconv.SparseMaxPool3d(2),
    )(peer)
    assert out.features.shape == (0, 3)
    assert out.dense().shape == (2, 3, 4, 4, 4)
    x = ME.SparseTensor(features, coordinates=sites)
    for made in (
        ME.MinkowskiConvolution(4, 6, kernel_size=3, dimension=3),
        ME.MinkowskiBatchNorm(6).eval(),
        ME.MinkowskiReLU(),
        ME.MinkowskiConvolution(6, 6, kernel_size=2, stride=2, dimension=3),
        ME.MinkowskiConvolutionTranspose(6, 5, kernel_size=2, stride=2, dimension=3),
        ME.MinkowskiMaxPooling(kernel_size=2, stride=2, dimension=3),
    ):
        x = made(x)
    assert x.F.shape == (0, 5)
    y = torchsparse.SparseTensor(features, sites)
    for layer_ in (
        torchsparse.nn.Conv3d(4, 6, 3),
        torchsparse.nn.BatchNorm(6).eval(),
        torchsparse.nn.ReLU(),
        torchsparse.nn.Conv3d(6, 6, 2, stride=2),
        torchsparse.nn.Conv3d(6, 5, 2, stride=2, transposed=True),
    ):
        y = layer_(y)
    assert y.F.shape == (0, 5)
    y.F.sum().backward()
    assert features.grad is not None


@pytest.mark.parametrize("ndim", DIMS)
def test_row_19_empty_borders_survive(engine: str, ndim: int) -> None:
    shape = (3, 5, 4, 6)[:ndim]
    dense = torch.randn(2, *shape, 3)
    for axis in range(1, ndim + 1):  # first and last slice of every axis
        for place in (0, -1):
            dense.select(axis, place).zero_()
    for given in (
        dense,
        torch.zeros_like(dense),
        dense * torch.tensor([0.0, 1]).view(2, *[1] * (ndim + 1)),
    ):
        x = SparseConvTensor.from_dense(given)
        assert x.spatial_shape == list(shape)
        assert x.batch_size == 2
        assert torch.equal(x.dense(channels_first=False), given)
        assert torch.equal(x.dense(), given.movedim(-1, 1))
        assert x.indices[:, 1:].numel() == 0 or int(x.indices[:, 1:].min()) > 0


def test_row_19_one_image(engine: str) -> None:
    image = torch.zeros(1, 3, 5, 1)
    image[0, :, 1:4, 0] = torch.arange(1.0, 10.0).reshape(3, 3)
    x = SparseConvTensor.from_dense(image)
    assert len(x) == 9
    assert_same(x.dense()[0, 0], image[0, :, :, 0])
    same = spnn.SubMConv2d(1, 1, 1, bias=False)
    same.weight.data.fill_(1)
    assert torch.equal(same(x).dense()[0, 0], image[0, :, :, 0])


def test_row_19_stand_ins(engine: str) -> None:
    image = torch.zeros(2, 2, 3, 5)
    image[1, :, :, 1:4] = torch.arange(1.0, 19.0).reshape(2, 3, 3)
    peer = spconv.SparseConvTensor.from_dense(image.movedim(1, -1))
    assert torch.equal(peer.dense(), image)
    for given in (image, torch.zeros_like(image)):
        x = ME.to_sparse(given)
        dense = x.dense(shape=torch.Size(given.shape))[0]
        assert torch.equal(dense, given)
