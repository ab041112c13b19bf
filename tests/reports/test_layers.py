"""Reports about layers and pools: rows 2, 4, 5, 7, 8, 10, 12, 22, 23, 25, 26."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from reports.sites import DIMS, at, cloud, convolved, layer, rows
from tolerance import GRADIENT, assert_close, assert_same

import sparse3d.compat.minkowski as ME
import sparse3d.compat.spconv.pytorch as spconv
import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, _registry
from sparse3d.compat import torchsparse

INT32_MAX = 2**31 - 1


def _three_samples(ndim: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Batch of 3 with the rows interleaved; sample 1 has negative values only."""
    batch = torch.tensor([2, 0, 1, 0, 2, 1, 2])
    place = torch.arange(7)[:, None].expand(7, ndim)
    features = torch.arange(35.0).reshape(7, 5).sub(17) * torch.tensor([1.0, -1, 1, -1, 1])
    features[batch == 1] = -features[batch == 1].abs() - 1
    mean = torch.stack([features[batch == b].mean(0) for b in range(3)])
    largest = torch.stack([features[batch == b].amax(0) for b in range(3)])
    return features, torch.cat([batch[:, None], place], 1), mean, largest


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("ndim", DIMS)
def test_row_02_global_pools_keep_every_channel(engine: str, ndim: int, dtype: torch.dtype) -> None:
    features, indices, mean, largest = _three_samples(ndim)
    x = SparseConvTensor(features.requires_grad_(), indices.to(dtype), [7] * ndim, 3)
    assert_close(spnn.SparseGlobalAvgPool()(x), mean, torch.float32)
    assert_close(spnn.SparseGlobalMaxPool()(x), largest, torch.float32)
    assert_close(spnn.SparseGlobalSumPool()(x).sum(0), features.sum(0), torch.float32)
    spnn.SparseGlobalMaxPool()(x).sum().backward()
    assert features.grad is not None
    assert int(features.grad.sum()) == 15


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_row_02_stand_ins(engine: str, dtype: torch.dtype) -> None:
    features, indices, mean, largest = _three_samples(3)
    x = spconv.SparseConvTensor(features, indices.to(dtype), [7] * 3, 3)
    assert_close(spconv.SparseGlobalAvgPool()(x), mean, torch.float32)
    assert_close(spconv.SparseGlobalMaxPool()(x), largest, torch.float32)
    y = ME.SparseTensor(features, coordinates=indices.to(dtype))
    assert_close(ME.MinkowskiGlobalAvgPooling()(y).F, mean, torch.float32)
    assert_close(ME.MinkowskiGlobalMaxPooling()(y).F, largest, torch.float32)
    z = torchsparse.SparseTensor(features, indices.to(dtype))
    assert_close(torchsparse.nn.GlobalAvgPool()(z), mean, torch.float32)
    assert_close(torchsparse.nn.GlobalMaxPool()(z), largest, torch.float32)


def test_row_04_pool_on_a_huge_grid(engine: str) -> None:
    sites = rows([31, 65535, 65535], [0, 0, 0], [31, 65534, 65535], [7, 1, 40000], [31, 0, 65535])
    features = torch.arange(1.0, 6.0)[:, None]
    for make in (spnn.SparseMaxPool2d, spnn.SparseAvgPool2d):
        out = make(2, 2)(SparseConvTensor(features, sites, [65536, 65536], 32))
        assert out.spatial_shape == [32768, 32768]
        wanted = rows([0, 0, 0], [7, 0, 20000], [31, 32767, 32767], [31, 0, 32767])
        assert_same(out.indices, wanted)
        assert len(out.features) == 4
    maximum = spnn.SparseMaxPool2d(2, 2)(SparseConvTensor(features, sites, [65536] * 2, 32))
    assert maximum.features[:, 0].tolist() == [2.0, 4.0, 3.0, 5.0]


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("ndim", DIMS)
def test_row_04_every_strided_layer_at_the_end_of_int32(engine: str, ndim: int, batch: int) -> None:
    """2^(31 D) cells: far beyond 64-bit keys."""
    top = INT32_MAX - 1
    sites = rows([batch - 1] + [top] * ndim, [batch - 1] + [0] * ndim)
    order = rows([batch - 1] + [top // 2] * ndim, [batch - 1] + [0] * ndim)
    x = SparseConvTensor(torch.ones(2, 3), sites, [INT32_MAX] * ndim, batch)
    down = layer("SparseConv", ndim, 3, 4, 2, 2, padding=1, indice_key="d")(x)
    assert_same(down.indices, rows([batch - 1] + [(top + 1) // 2] * ndim, order[1].tolist()))
    assert_same(layer("SparseMaxPool", ndim, 3, 2, 1)(x).indices[:1, 1:].amax(), top // 2)
    assert int(layer("SparseAvgPool", ndim, 3, 2, 1)(x).indices.amin()) >= 0
    back = layer("SparseInverseConv", ndim, 4, 3, 2, "d")(down)
    assert_same(back.indices, sites)
    same = layer("SubMConv", ndim, 3, 3, 3, dilation=2)(x)
    assert_same(same.indices, sites)
    assert torch.equal(same.features, same.features[:1].expand(2, -1))  # no neighbour by wrapping
    with pytest.raises(ValueError, match=r"SparseConvTranspose.*output grid must be at most"):
        layer("SparseConvTranspose", ndim, 3, 3, 2, 2)(x)


def test_row_04_stand_ins(engine: str) -> None:
    sites = rows([31, 65535, 65535], [0, 0, 0])
    x = spconv.SparseConvTensor(torch.ones(2, 1), sites, [65536, 65536], 32)
    assert_same(spconv.SparseMaxPool2d(2, 2)(x).indices, rows([0, 0, 0], [31, 32767, 32767]))
    y = ME.SparseTensor(torch.ones(2, 1), coordinates=sites)
    out = ME.MinkowskiMaxPooling(kernel_size=2, stride=2, dimension=2)(y)
    found = {tuple(site) for site in out.C.tolist()}
    assert found == {(0, 0, 0), (31, 65534, 65534)}  # its coordinates keep their scale


@pytest.mark.parametrize("kernel", [1, 2])
@pytest.mark.parametrize("ndim", DIMS)
def test_row_05_nine_empty_samples(engine: str, ndim: int, kernel: int) -> None:
    x = SparseConvTensor(torch.ones(1, 3), rows([2] + [2] * ndim), [4] * ndim, 10)
    out = layer("SparseConv", ndim, 3, 5, kernel, 2, bias=False)(x)
    assert_same(out.indices, rows([2] + [1] * ndim))
    assert out.spatial_shape == [2] * ndim
    dense = out.dense()
    assert dense.shape == (10, 5, *[2] * ndim)
    others = [b for b in range(10) if b != 2]
    assert not dense[others].any()
    assert_close(at(dense, out.indices), out.features, torch.float32)
    assert dense[2].any()
    pooled = layer("SparseMaxPool", ndim, kernel, 2)(x)
    assert_same(pooled.indices, out.indices)
    assert spnn.SparseGlobalAvgPool()(pooled).shape == (10, 3)


@pytest.mark.parametrize("library", [spnn, spconv], ids=["native", "spconv"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("SubMConv3d", (1, 3, 3)), ("SubMConv3d", (3, 3, 3))),
        (("SubMConv3d", (3, 3, 3), 1, 0, 2), ("SubMConv3d", (3, 3, 3))),
        (("SubMConv3d", (3, 3, 3)), ("SparseConv3d", (3, 3, 3), 1, 1)),
        (("SparseConv3d", (3, 3, 3), 1, 1), ("SparseConv3d", (3, 3, 3), 1, 2)),
        (("SparseConv3d", (3, 3, 3), 1, 1), ("SubMConv3d", (3, 3, 3))),
        (("SparseConv3d", (1, 3, 3), 1, (0, 1, 1)), ("SparseConvTranspose3d", (3, 3, 3))),
        (("SubMConv3d", (3, 3, 3)), ("SparseMaxPool3d", (3, 3, 3), 1, 1)),
        (("SparseMaxPool3d", (3, 3, 3), 1, 1), ("SubMConv3d", (3, 3, 3))),
        (("SparseMaxPool3d", (3, 3, 3), 1, 1), ("SparseMaxPool3d", (3, 3, 3), 1, 2)),
        (("SparseAvgPool3d", (1, 3, 3), 1, (0, 1, 1)), ("SparseConv3d", (3, 3, 3), 1, 1)),
    ],
    ids=lambda spec: f"{spec[0]}-{'x'.join(map(str, spec[1]))}",
)
def test_row_07_layers_of_other_geometry_do_not_share_a_key(
    engine: str, library: Any, first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    def make(kind: str, kernel: tuple[int, ...], *numbers: Any) -> Any:
        channels = () if "Pool" in kind else (4, 4)
        return getattr(library, kind)(*channels, kernel, *numbers, indice_key="shared")

    x = cloud(3)
    if library is spconv:
        x = spconv.SparseConvTensor(x.features, x.indices, x.spatial_shape, x.batch_size)
    y = make(*first)(x)
    with pytest.raises(ValueError, match="'shared'") as caught:
        make(*second)(y)
    message = str(caught.value)
    assert message.count("kernel_size=") == 2
    assert str(list(first[1])) in message
    assert str(list(second[1])) in message


def test_row_07_equal_layers_share_and_separate_keys_agree(engine: str) -> None:
    """Sharing is worth having only if it changes nothing."""
    x = cloud(3)
    one, two = spnn.SubMConv3d(4, 4, 3, indice_key="a"), spnn.SubMConv3d(4, 4, 3, indice_key="a")
    shared = two(one(x)).features
    one.indice_key, two.indice_key = "b", "c"
    assert torch.equal(shared, two(one(x)).features)
    other = SparseConvTensor(x.features[:-1], x.indices[:-1], x.spatial_shape, x.batch_size)
    other.indice_dict = one(x).indice_dict
    with pytest.raises(ValueError, match=r"indice_key 'b'.*sites it was made for"):
        one(other)


@pytest.mark.parametrize("kind", ["SparseConv3d", "SparseMaxPool3d", "SparseAvgPool3d"])
@pytest.mark.parametrize("library", [spnn, spconv], ids=["native", "spconv"])
def test_row_08_vanishing_axis_is_named(engine: str, library: Any, kind: str) -> None:
    channels = () if "Pool" in kind else (2, 2)
    made = getattr(library, kind)(*channels, 3, 2, (0, 1, 1), name="stem.down")
    x = library.SparseConvTensor(torch.ones(1, 2), rows([0, 0, 5, 5]), [1, 124, 124], 1)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (all of it is looked at)
        made(x)
    text = str(caught.value)
    assert f"{kind} 'stem.down': output grid must be at least 1 on every axis" in text
    assert "axis 0 of input grid [1, 124, 124]" in text
    assert "\n" not in text


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("ndim", DIMS)
def test_row_08_every_axis(engine: str, ndim: int, axis: int, empty: bool) -> None:
    if axis >= ndim:
        axis = ndim - 1
    grid = [9] * ndim
    grid[axis] = 2
    sites = rows([0] * (ndim + 1))[: 0 if empty else 1]
    x = SparseConvTensor(torch.ones(len(sites), 2), sites, grid, 1)
    for made in (layer("SparseConv", ndim, 2, 2, 3), layer("SparseMaxPool", ndim, 3, 1)):
        with pytest.raises(ValueError, match=rf"axis {axis} of input grid {re.escape(str(grid))}"):
            made(x)
    up = layer("SparseConvTranspose", ndim, 2, 2, 3, 1, 2)
    with pytest.raises(ValueError, match=rf"axis {axis} of input grid {re.escape(str(grid))}"):
        up(x)


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("ndim", DIMS)
def test_row_10_bias_is_added_and_has_its_gradient(engine: str, ndim: int, grad: bool) -> None:
    x = cloud(ndim, side=4)
    conv = layer("SubMConv", ndim, 4, 8, 3, bias=True)
    with torch.set_grad_enabled(grad):  # without a gradient the fused pass runs
        out = conv(x)
    bias = conv.bias.detach()
    dense = convolved(x.dense().detach(), conv.kernel().detach(), 1, 1)
    wanted = at(dense, x.indices) + bias
    assert_close(out.features, wanted, torch.float32)
    if grad:
        upstream = torch.randn_like(out.features)
        out.features.backward(upstream)
        assert_close(conv.bias.grad, upstream.sum(0), torch.float32, GRADIENT)


@pytest.mark.parametrize("activation", [None, "relu", "sigmoid"])
@pytest.mark.parametrize("kind", ["conv", "pointwise", "transposed", "inverse", "grouped"])
def test_row_10_every_layer_has_a_bias(engine: str, kind: str, activation: str | None) -> None:
    """Equal to the layer without one, plus the bias, then the activation; training and not."""
    make = {
        "conv": lambda bias: spnn.SparseConv3d(4, 6, 3, 2, 1, bias=bias),
        "pointwise": lambda bias: spnn.SubMConv3d(4, 6, 1, bias=bias),
        "transposed": lambda bias: spnn.SparseConvTranspose3d(4, 6, 2, 2, bias=bias),
        "inverse": lambda bias: spnn.SparseInverseConv3d(4, 6, 2, "d", bias=bias),
        "grouped": lambda bias: spnn.SubMConv3d(4, 6, 3, groups=2, bias=bias),
    }[kind]
    x = spnn.SparseConv3d(4, 4, 2, 2, indice_key="d")(cloud(3))
    bare, biased = make(False), make(True)
    biased.act_type = activation or "none"
    biased.weight.data = bare.weight.data
    act = {None: lambda v: v, "relu": torch.relu, "sigmoid": torch.sigmoid}[activation]
    wanted = act(bare(x).features + biased.bias).detach()
    assert_close(biased(x).features, wanted, torch.float32)
    with torch.no_grad():
        assert_close(biased(x).features, wanted, torch.float32)


def test_row_10_stand_ins(engine: str) -> None:
    x = cloud(3)
    places = torch.randn(6)
    features = x.features.detach()
    for make in (
        lambda: ME.MinkowskiConvolution(4, 6, kernel_size=3, bias=True, dimension=3),
        lambda: torchsparse.nn.Conv3d(4, 6, 3, bias=True),
    ):
        conv = make()
        tensor: Any = (
            ME.SparseTensor(features, coordinates=x.indices)
            if isinstance(conv, ME.MinkowskiConvolution)
            else torchsparse.SparseTensor(features, x.indices)
        )
        conv.bias.data.zero_()
        bare = conv(tensor).F.detach()
        conv.bias.data.copy_(places.reshape(conv.bias.shape))
        out = conv(tensor).F
        assert_close(out, bare + places, torch.float32)
        out.sum().backward()
        assert_close(conv.bias.grad.reshape(-1), torch.full((6,), float(len(x))), torch.float32)


@pytest.mark.parametrize("ndim", DIMS)
def test_row_12_rows_by_batch_and_alike_in_conv_and_pool(engine: str, ndim: int) -> None:
    x = cloud(ndim, batch=3, side=6 if ndim < 4 else 4)
    assert (x.indices[1:, 0] < x.indices[:-1, 0]).any()  # shuffled
    conv = layer("SparseConv", ndim, 4, 4, 2, 2)
    first = conv(x).indices
    assert bool((first[1:, 0] >= first[:-1, 0]).all())
    assert_same(layer("SparseMaxPool", ndim, 2, 2)(x).indices, first)
    assert_same(layer("SparseAvgPool", ndim, 2, 2)(x).indices, first)
    assert_same(layer("SparseConv", ndim, 4, 9, 2, 2, rule="floor")(x).indices, first)
    again = SparseConvTensor(x.features, x.indices.clone(), x.spatial_shape, 3)
    assert_same(conv(again).indices, first)
    assert torch.equal(conv(again).features, conv(x).features)


def test_row_12_same_order_on_every_backend(backend: str) -> None:
    x = cloud(3, batch=3, side=7)
    found = []
    for name in ("reference", backend):
        with _registry.force(name):
            fresh = SparseConvTensor(x.features, x.indices.clone(), x.spatial_shape, 3)
            found.append([
                spnn.SparseConv3d(4, 4, 3, 2, 1)(fresh).indices,
                spnn.SparseConvTranspose3d(4, 4, 3, 2)(fresh).indices,
                fresh.coalesce().indices,
                (fresh + spnn.SparseMaxPool3d(3, 1, 1)(fresh)).indices,
            ])  # fmt: skip
    for left, right in zip(*found, strict=True):
        assert_same(left, right)
        assert bool((left[1:, 0] >= left[:-1, 0]).all())


def test_row_22_points_on_a_plane_without_a_grid(engine: str) -> None:
    sites = rows([0, 0, 0, 0], [0, 1, 0, 1])
    for rule in ("footprint", "floor"):
        x = SparseConvTensor(torch.ones(2, 2), sites, None, 1)
        assert_same(spnn.SparseConv3d(2, 2, 2, 2, rule=rule)(x).indices, rows([0, 0, 0, 0]))
        assert_same(spnn.SparseMaxPool3d(2, 2, rule=rule)(x).indices, rows([0, 0, 0, 0]))


def test_row_22_an_inferred_grid_of_one_cell_is_refused_or_kept_by_floor(engine: str) -> None:
    x = SparseConvTensor(torch.ones(2, 2), rows([0, 0, 0, 0], [0, 1, 0, 1]), [2, 1, 2], 1)
    with pytest.raises(ValueError, match=r"axis 1 of input grid \[2, 1, 2\]"):
        spnn.SparseConv3d(2, 2, 2, 2)(x)
    out = spnn.SparseConv3d(2, 2, 2, 2, rule="floor")(x)
    assert_same(out.indices, rows([0, 0, 0, 0]))
    assert out.spatial_shape == [1, 1, 1]


@pytest.mark.parametrize("axis", range(3))
def test_row_22_stand_ins(engine: str, axis: int) -> None:
    sites = torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1]], dtype=torch.int32)
    sites[:, axis + 1] = 0
    features = torch.ones(2, 2)
    out = ME.MinkowskiConvolution(2, 2, kernel_size=2, stride=2, dimension=3)(
        ME.SparseTensor(features, coordinates=sites)
    )
    assert_same(out.C, rows([0, 0, 0, 0]))
    for kind in (torchsparse.nn.Conv3d(2, 2, 2, stride=2), torchsparse.nn.Conv3d(2, 2, 3, 2, 1)):
        made = kind(torchsparse.SparseTensor(features, sites))
        assert (0, 0, 0, 0) in [tuple(site) for site in made.C.tolist()]


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("ndim", DIMS)
def test_row_23_a_transposed_layer_makes_all_children(engine: str, ndim: int, grid: bool) -> None:
    x = SparseConvTensor(
        torch.ones(2, 3), rows([0] + [1] * ndim, [1] + [3] * ndim), [4] * ndim if grid else None, 2
    )
    out = layer("SparseConvTranspose", ndim, 3, 2, 2, 2)(x)
    assert len(out) == 2 * 2**ndim
    assert out.spatial_shape == ([8] * ndim if grid else None)
    assert_same(out.indices[:, 1:].div(2, rounding_mode="floor").unique(), torch.tensor([1, 3]))
    assert len(set(map(tuple, out.indices.tolist()))) == len(out)


def test_row_23_an_inverse_layer_names_what_is_missing(engine: str) -> None:
    x = cloud(3)
    with pytest.raises(ValueError, match=r"'up'.*indice_key 'down'.*no such key.*strided layer"):
        spnn.SparseInverseConv3d(4, 4, 2, "down", name="up")(x)
    after = spnn.SubMConv3d(4, 4, 3, indice_key="down")(x)
    with pytest.raises(ValueError, match=r"indice_key 'down'.*submanifold.*nothing to undo"):
        spnn.SparseInverseConv3d(4, 4, 3, "down")(after)


def test_row_23_stand_ins(engine: str) -> None:
    sites = rows([0, 2, 2, 2], [0, 4, 4, 4])
    features = torch.ones(2, 2)
    x = torchsparse.SparseTensor(features, sites // 2, stride=2)
    with pytest.raises(ValueError, match=r"kernel_size=\[2, 2, 2\].*use generative=True"):
        torchsparse.nn.Conv3d(2, 2, 2, stride=2, transposed=True)(x)
    made = torchsparse.nn.Conv3d(2, 2, 2, stride=2, transposed=True, generative=True)(x)
    assert len(made.C) == 16
    assert made.stride == (1, 1, 1)
    y = ME.SparseTensor(features, coordinates=sites, tensor_stride=2)
    grown = ME.MinkowskiGenerativeConvolutionTranspose(2, 2, kernel_size=2, stride=2, dimension=3)(
        y
    )
    assert len(grown.C) == 16
    assert grown.tensor_stride == [1, 1, 1]
    up = ME.MinkowskiConvolutionTranspose(2, 2, kernel_size=2, stride=2, dimension=3)(y)
    assert up.tensor_stride == [1, 1, 1]
    assert len(up.C) == 16


@pytest.mark.parametrize("ndim", DIMS)
def test_row_25_one_input_many_layers(engine: str, ndim: int) -> None:
    x = cloud(ndim)
    before = x.indices.clone(), x.features.detach().clone(), list(x.spatial_shape or [])
    layers = [
        layer("SparseConv", ndim, 4, 4, 2, 2, indice_key="a"),
        layer("SparseConv", ndim, 4, 4, 3, 2, 1, indice_key="a"),
        layer("SparseMaxPool", ndim, 2, 2),
        layer("SparseConvTranspose", ndim, 4, 4, 2, 2),
        layer("SubMConv", ndim, 4, 4, 3),
        spnn.SparseReLU(inplace=False),
    ]
    alone = []
    for made in layers:
        fresh = SparseConvTensor(x.features, x.indices.clone(), x.spatial_shape, x.batch_size)
        alone.append(made(fresh))
    for _ in range(2):
        for made, wanted in zip(layers, alone, strict=True):
            out = made(x)
            assert_same(out.indices, wanted.indices)
            assert torch.equal(out.features, wanted.features)
            assert torch.equal(x.indices, before[0])
            assert torch.equal(x.features, before[1])
            assert x.spatial_shape == before[2]
            assert x.indice_dict == {}


def test_row_25_stand_ins(engine: str) -> None:
    x = cloud(3)
    features, sites = x.features.detach(), x.indices
    y = torchsparse.SparseTensor(features, sites.clone())
    z = ME.SparseTensor(features, coordinates=sites.clone())
    for tensor, layers in (
        (y, (torchsparse.nn.Conv3d(4, 4, 2, stride=2), torchsparse.nn.Conv3d(4, 4, 3, 2, 1))),
        (
            z,
            (
                ME.MinkowskiConvolution(4, 4, kernel_size=2, stride=2, dimension=3),
                ME.MinkowskiConvolution(4, 4, kernel_size=3, stride=2, dimension=3),
            ),
        ),
    ):
        kept = tensor.C.clone()
        for made in (*layers, *layers):
            fresh = (
                torchsparse.SparseTensor(features, sites.clone())
                if tensor is y
                else ME.SparseTensor(features, coordinates=sites.clone())
            )
            first, second, lonely = made(tensor), made(tensor), made(fresh)
            assert torch.equal(tensor.C, kept)
            assert torch.equal(first.C, second.C)
            assert torch.equal(first.F, second.F)
            assert torch.equal(first.C, lonely.C)
            assert torch.equal(first.F, lonely.F)


@pytest.mark.parametrize("ndim", DIMS)
def test_row_26_dilation_skips_the_neighbour(engine: str, ndim: int) -> None:
    pad = [0] * (ndim - 1)
    sites = rows(*([0, *pad, place] for place in range(3)))
    features = torch.tensor([[1.0], [10.0], [100.0]])
    for make in ("SubMConv", "SparseConv"):
        conv = layer(make, ndim, 1, 1, 3, padding=2, dilation=2, bias=False)
        conv.weight.data.fill_(1)
        x = SparseConvTensor(features, sites, [3] * ndim, 1)
        out = conv(x)
        mine = at(out.dense(), sites)[:, 0]
        assert mine.tolist() == [101.0, 10.0, 101.0]
        dense = convolved(x.dense(), conv.kernel().detach(), 1, 2, 2)
        assert_close(at(out.dense(), out.indices), at(dense, out.indices), torch.float32)


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("ndim", DIMS)
def test_row_26_dilation_of_strided_layers_and_pools(engine: str, ndim: int, dilation: int) -> None:
    x = cloud(ndim, side=8 if ndim < 4 else 5, share=0.5)
    conv = layer("SparseConv", ndim, 4, 3, 2, 2, 1, dilation, bias=False)
    out = conv(x)
    dense = convolved(x.dense().detach(), conv.kernel().detach(), 2, 1, dilation)
    assert_close(at(dense, out.indices), out.features, torch.float32)
    ones = torch.ones(4, *[2] * ndim, 4) * torch.eye(4).reshape(4, *[1] * ndim, 4)
    pool = layer("SparseAvgPool", ndim, 2, 2, 1, dilation)
    mean = pool(x)
    total = convolved(x.dense().detach(), ones, 2, 1, dilation)
    mask = (x.dense().detach() != 0).float()
    count = convolved(mask, ones, 2, 1, dilation)
    assert_close(mean.features, at(total / count.clamp(min=1), mean.indices), torch.float32)
    assert_same(mean.indices, out.indices)


def test_row_26_stand_ins(engine: str) -> None:
    sites = rows([0, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0])
    features = torch.tensor([[1.0], [10.0], [100.0]])
    mink = ME.MinkowskiConvolution(1, 1, kernel_size=3, dilation=2, dimension=3)
    spars = torchsparse.nn.Conv3d(1, 1, 3, dilation=2)
    for conv, x in (
        (mink, ME.SparseTensor(features, coordinates=sites)),
        (spars, torchsparse.SparseTensor(features, sites)),
    ):
        conv.kernel.data.fill_(1)
        assert conv(x).F[:, 0].tolist() == [101.0, 10.0, 101.0]
