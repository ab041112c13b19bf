"""The MinkowskiEngine stand-in beyond the vectors, against dense layers and plain loops."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import sparse3d.compat.minkowski as ME
from sparse3d.compat.minkowski import MinkowskiFunctional as MEF
from sparse3d.compat.minkowski import utils
from sparse3d.compat.minkowski._backend import _C
from sparse3d.compat.minkowski.modules.resnet_block import BasicBlock, Bottleneck
from sparse3d.compat.minkowski.modules.senet_block import SEBasicBlock, SEBottleneck, SELayer
from sparse3d.compat.minkowski.utils.gradcheck import gradcheck

Mode = ME.SparseTensorQuantizationMode


def places(rows: int, side: int, axes: int, low: int = 0, batch: int = 2) -> torch.Tensor:
    """Distinct coordinates (batch, *axes) in [low, low + side)."""
    cells = torch.randperm(batch * side**axes)[:rows]
    digits = [cells // side**power % side + low for power in reversed(range(axes))]
    return torch.stack([cells // side**axes, *digits], 1).int()


def scene(rows: int = 60, side: int = 7, axes: int = 3, low: int = 0, **more: Any) -> Any:
    coords = places(rows, side, axes, low)
    return ME.SparseTensor(torch.randn(rows, 4).double(), coords, **more)


def by_place(x: Any) -> dict[tuple[int, ...], torch.Tensor]:
    return {tuple(c): f for c, f in zip(x.C.tolist(), x.F, strict=True)}


def summed(x: Any, offsets: torch.Tensor, kernel: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """in = out + offset, tap by tap, in plain loops."""
    table = by_place(x)
    made = torch.zeros(len(out), kernel.shape[-1], dtype=kernel.dtype)
    for row, place in enumerate(out.tolist()):
        for tap, offset in enumerate(offsets.tolist()):
            near = (place[0], *(p + o for p, o in zip(place[1:], offset, strict=True)))
            if near in table:
                made[row] += table[near] @ kernel[tap]
    return made


def cube(size: list[int], stride: int = 1) -> torch.Tensor:
    """Offsets with the first axis fastest: odd sizes centred, even ones from 0."""
    axes = [torch.arange(k) - (k // 2 if k % 2 else 0) for k in reversed(size)]
    grid = torch.meshgrid(*axes, indexing="ij")
    return torch.stack([g.reshape(-1) for g in reversed(grid)], 1) * stride


def same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------------- convolutions


@pytest.mark.parametrize("size", [[3], [2, 3], [3, 1, 2], [3, 2, 1, 3]])
@pytest.mark.parametrize("stride", [1, 2])
def test_conv_in_one_to_four_dimensions(size: list[int], stride: int) -> None:
    x = scene(40, 25 if len(size) == 1 else 5, len(size), low=-3)
    layer = ME.MinkowskiConvolution(4, 3, size, stride, bias=True, dimension=len(size)).double()
    out = layer(x)
    assert out.tensor_stride == [stride] * len(size)
    same(out.F, summed(x, cube(size), layer.kernel, out.C) + layer.bias)
    floors = torch.div(x.C[:, 1:], stride, rounding_mode="floor") * stride
    wanted = {(b, *c) for b, c in zip(x.C[:, 0].tolist(), map(tuple, floors.tolist()), strict=True)}
    assert {tuple(c) for c in out.C.tolist()} == wanted


def test_second_stride_and_dilation_count_in_tensor_strides() -> None:
    x = scene(80, 9)
    coarse = ME.MinkowskiConvolution(4, 4, 2, 2, dimension=3).double()(x)
    layer = ME.MinkowskiConvolution(4, 3, 3, dilation=2, dimension=3).double()
    out = layer(coarse)
    assert out.coordinate_map_key == coarse.coordinate_map_key
    same(out.F, summed(coarse, cube([3, 3, 3], 4), layer.kernel, out.C))


def test_a_kernel_of_one_tap_is_a_matrix_with_strides_too() -> None:
    x = scene()
    plain = ME.MinkowskiConvolution(4, 3, 1, dimension=3).double()
    assert plain.kernel.shape == (4, 3)
    same(plain(x).F, x.F @ plain.kernel)
    strided = ME.MinkowskiConvolution(4, 3, 1, 2, dimension=3).double()
    assert strided.kernel.shape == (1, 4, 3)
    out = strided(x)
    same(out.F, summed(x, torch.zeros(1, 3).int(), strided.kernel, out.C))


def test_custom_offsets() -> None:
    x = scene()
    offsets = torch.tensor([[0, 0, 0], [2, 0, -1], [-1, 3, 0], [0, 0, 1]], dtype=torch.int32)
    maker = ME.KernelGenerator(
        region_type=ME.RegionType.CUSTOM, region_offsets=offsets, dimension=3
    )
    assert maker.kernel_volume == 4
    layer = ME.MinkowskiConvolution(4, 3, kernel_generator=maker, dimension=3).double()
    same(layer(x).F, summed(x, offsets, layer.kernel, x.C))
    with pytest.raises(ValueError, match=r"region_offsets must be a non-empty \[N, D\] list"):
        ME.KernelGenerator(region_type=ME.RegionType.CUSTOM, dimension=3)
    with pytest.raises(ValueError, match=r"kernel_size must be odd for RegionType\.HYPER_CROSS"):
        ME.KernelGenerator(2, region_type=ME.RegionType.HYPER_CROSS, dimension=3)


def test_cross_offsets() -> None:
    x = scene()
    maker = ME.KernelGenerator(5, region_type=ME.RegionType.HYPER_CROSS, dimension=3)
    offsets = [[0, 0, 0]]
    for axis in range(3):
        for step in (1, 2, -2, -1):
            offsets.append([step if a == axis else 0 for a in range(3)])
    layer = ME.MinkowskiConvolution(4, 3, kernel_generator=maker, dimension=3).double()
    assert layer.kernel.shape == (13, 4, 3)
    same(layer(x).F, summed(x, torch.tensor(offsets), layer.kernel, x.C))


@pytest.mark.parametrize("how", ["tensor", "key", "sparse tensor"])
def test_conv_onto_coordinates(how: str) -> None:
    x = scene(60, 6, low=-2)
    target = places(30, 8, 3, low=-3)
    layer = ME.MinkowskiConvolution(4, 3, 3, dimension=3).double()
    if how == "tensor":
        out = layer(x, target)
    elif how == "key":
        out = layer(x, x.coordinate_manager.insert_and_map(target, string_id="mine")[0])
    else:
        y = ME.SparseTensor(torch.zeros(30, 1), target, coordinate_manager=x.coordinate_manager)
        out = layer(x, y)
        assert out.coordinate_map_key == y.coordinate_map_key
    assert {tuple(c) for c in out.C.tolist()} == {tuple(c) for c in target.tolist()}
    same(out.F, summed(x, cube([3, 3, 3]), layer.kernel, out.C))


def test_transposed_layers_return_to_the_finer_set() -> None:
    x = scene(60, 7, low=-3)
    down = ME.MinkowskiConvolution(4, 4, 3, 2, dimension=3).double()
    up = ME.MinkowskiConvolutionTranspose(4, 3, 3, 2, bias=True, dimension=3).double()
    coarse = down(x)
    out = up(coarse)
    assert out.coordinate_map_key == x.coordinate_map_key
    table, wanted = by_place(coarse), torch.zeros(len(x), 3).double()
    for row, place in enumerate(out.C.tolist()):
        for tap, offset in enumerate(cube([3, 3, 3]).tolist()):
            near = (place[0], *(p - o for p, o in zip(place[1:], offset, strict=True)))
            if near in table:
                wanted[row] += table[near] @ up.kernel[tap]
    same(out.F, wanted + up.bias)


def test_generative_layers_make_every_site_that_they_reach() -> None:
    coords = places(20, 4, 3, low=-2)
    coords[:, 1:] *= 2
    x = ME.SparseTensor(torch.randn(20, 4).double(), coords, tensor_stride=2)
    layer = ME.MinkowskiGenerativeConvolutionTranspose(4, 3, 3, 2, dimension=3).double()
    out = layer(x)
    reached = {
        (c[0], *(p + o for p, o in zip(c[1:], offset, strict=True)))
        for c in coords.tolist()
        for offset in cube([3, 3, 3]).tolist()
    }
    assert {tuple(c) for c in out.C.tolist()} == reached
    assert out.tensor_stride == [1, 1, 1]
    fine = ME.MinkowskiConvolutionTranspose(4, 3, 3, 2, expand_coordinates=True, dimension=3)
    fine.double().load_state_dict(layer.state_dict())
    again = fine(x)
    same(torch.stack([by_place(again)[tuple(c)] for c in out.C.tolist()]), out.F)


def test_channelwise_is_depthwise() -> None:
    x = scene()
    layer = ME.MinkowskiChannelwiseConvolution(4, 3, bias=True, dimension=3).double()
    kernel = torch.diag_embed(layer.kernel)
    same(layer(x).F, summed(x, cube([3, 3, 3]), kernel, x.C) + layer.bias)


@pytest.mark.parametrize("rows", [0, 1])
def test_tiny_scenes_pass_every_layer(rows: int) -> None:
    x = ME.SparseTensor(torch.randn(rows, 4), torch.zeros(rows, 4).int())
    net = nn.Sequential(
        ME.MinkowskiConvolution(4, 4, 3, dimension=3),
        ME.MinkowskiBatchNorm(4).eval(),
        ME.MinkowskiReLU(),
        ME.MinkowskiConvolution(4, 4, 3, 2, dimension=3),
        ME.MinkowskiMaxPooling(2, 2, dimension=3),
        ME.MinkowskiPoolingTranspose(2, 2, dimension=3),
        ME.MinkowskiConvolutionTranspose(4, 2, 2, 2, dimension=3),
    )
    out = net(x)
    assert len(out) == rows
    assert out.tensor_stride == [1, 1, 1]


# ------------------------------------------------------------------- pools, norms, broadcasts


@pytest.mark.parametrize("kind", ["Sum", "Avg", "Max"])
def test_pools_over_present_neighbours(kind: str) -> None:
    x = scene(90, 6, low=-2)
    out = getattr(ME, f"Minkowski{kind}Pooling")(kernel_size=3, stride=2, dimension=3)(x)
    table = by_place(x)
    for place, got in by_place(out).items():
        near = [
            table[key]
            for offset in cube([3, 3, 3]).tolist()
            if (key := (place[0], *(p + o for p, o in zip(place[1:], offset, strict=True))))
            in table
        ]
        if near:
            rows = torch.stack(near)
            kinds = {"Sum": rows.sum(0), "Avg": rows.mean(0), "Max": rows.amax(0)}
            same(got, kinds[kind])


def test_unpooling_copies_the_cell() -> None:
    x = scene(60, 8)
    coarse = ME.MinkowskiAvgPooling(2, 2, dimension=3)(x)
    fine = ME.MinkowskiPoolingTranspose(2, 2, dimension=3)(coarse)
    table = by_place(coarse)
    wanted = [table[(c[0], *(p // 2 * 2 for p in c[1:]))] for c in fine.C.tolist()]
    same(fine.F, torch.stack(wanted))


def test_global_pools_and_broadcasts() -> None:
    x = scene()
    batch = x.C[:, 0]
    rows = [x.F[batch == b] for b in range(2)]
    pooled = {
        "Sum": torch.stack([r.sum(0) for r in rows]),
        "Avg": torch.stack([r.mean(0) for r in rows]),
        "Max": torch.stack([r.amax(0) for r in rows]),
    }
    for kind, wanted in pooled.items():
        out = getattr(ME, f"MinkowskiGlobal{kind}Pooling")()(x)
        same(out.F, wanted)
        assert out.C.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]
        assert out.tensor_stride == [0, 0, 0]
    glob = ME.MinkowskiGlobalSumPooling()(x)
    spread = pooled["Sum"][batch.long()]
    same(ME.MinkowskiBroadcast()(x, glob).F, spread)
    same(ME.MinkowskiBroadcastAddition()(x, glob).F, x.F + spread)
    same(ME.MinkowskiBroadcastMultiplication()(x, glob).F, x.F * spread)
    same(ME.MinkowskiBroadcastConcatenation()(x, glob).F, torch.cat([x.F, spread], 1))
    with pytest.raises(ValueError, match="input_glob must be a global pool's output"):
        ME.MinkowskiBroadcast()(x, x)


@pytest.mark.parametrize("kind", ["", "Sum", "Avg", "Max"])
def test_global_pools_and_broadcasts_take_the_dimension_of_older_networks(kind: str) -> None:
    x = scene()
    name = f"MinkowskiGlobal{kind}Pooling"
    glob = getattr(ME, name)(dimension=3)(x)
    same(glob.F, getattr(ME, name)()(x).F)
    for how in ("", "Addition", "Multiplication", "Concatenation"):
        spread = getattr(ME, f"MinkowskiBroadcast{how}")
        same(spread(dimension=3)(x, glob).F, spread()(x, glob).F)


@pytest.mark.parametrize("name", ["MinkowskiInstanceNorm", "MinkowskiStableInstanceNorm"])
def test_instance_norms_are_torchs_sample_by_sample(name: str) -> None:
    x = scene()
    layer = getattr(ME, name)(4).double()
    nn.init.uniform_(layer.weight)
    out = layer(x).F
    for b in range(2):
        rows = x.F[x.C[:, 0] == b]
        wanted = functional.instance_norm(rows.t()[None], eps=layer.eps)[0].t()
        same(out[x.C[:, 0] == b], wanted * layer.weight + layer.bias)
    older = getattr(ME, name)(4, dimension=3).double()  # as networks for 0.4 say
    older.load_state_dict(layer.state_dict())
    same(older(x).F, out)


def test_batch_norm_and_its_synchronised_form() -> None:
    net = nn.Sequential(ME.MinkowskiConvolution(4, 4, 3, dimension=3), ME.MinkowskiBatchNorm(4))
    assert set(net[1].state_dict()) == {
        f"bn.{n}" for n in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    made = ME.MinkowskiSyncBatchNorm.convert_sync_batchnorm(net)
    assert isinstance(made[1], ME.MinkowskiSyncBatchNorm)
    assert set(made[1].state_dict()) == set(net[1].state_dict())


def test_nonlinearities_hold_torchs_module() -> None:
    x = scene()
    for name in ("ReLU", "GELU", "SiLU", "Tanh", "Softmax", "Threshold", "Hardswish"):
        arguments = {"Softmax": (1,), "Threshold": (0.1, 2.0)}.get(name, ())
        layer = getattr(ME, f"Minkowski{name}")(*arguments)
        torchs = getattr(nn, name)(*arguments)
        assert type(layer.module) is type(torchs)
        same(layer(x).F, torchs(x.F))
    same(MEF.relu(x).F, x.F.relu())
    same(MEF.leaky_relu(x, 0.3).F, functional.leaky_relu(x.F, 0.3))
    labels = torch.randint(0, 4, (60,))
    same(MEF.cross_entropy(x, labels), functional.cross_entropy(x.F, labels))


@pytest.mark.parametrize("kind", [BasicBlock, Bottleneck, SEBasicBlock, SEBottleneck])
def test_blocks_train(kind: Any) -> None:
    short = nn.Sequential(
        ME.MinkowskiConvolution(4, 8 * kind.expansion, 1, 2, dimension=3),
        ME.MinkowskiBatchNorm(8 * kind.expansion),
    )
    squeezes = kind in (SEBasicBlock, SEBottleneck)
    more: dict[str, Any] = {"D": 3, "reduction": 2} if squeezes else {"dimension": 3}
    block = kind(4, 8, 2, downsample=short, **more).double()
    leaf = torch.randn(60, 4).double().requires_grad_()
    out = block(ME.SparseTensor(leaf, places(60, 7, 3)))
    assert out.F.shape[1] == 8 * kind.expansion
    out.F.sum().backward()
    assert leaf.grad is not None
    assert SELayer(4, 2, D=3).double()(scene()).F.shape == (60, 4)


# ----------------------------------------------------------------------------------- tensors


def test_rows_at_one_place() -> None:
    coords = torch.tensor([[0, 2], [0, 1], [0, 2], [2, 2], [0, 1]], dtype=torch.int32)
    feats = torch.tensor([[1.0], [2.0], [3.0], [4.0], [6.0]])
    wanted = {
        Mode.RANDOM_SUBSAMPLE: {(0, 1): 2, (0, 2): 1, (2, 2): 4},
        Mode.UNWEIGHTED_AVERAGE: {(0, 1): 4, (0, 2): 2, (2, 2): 4},
        Mode.UNWEIGHTED_SUM: {(0, 1): 8, (0, 2): 4, (2, 2): 4},
        Mode.MAX_POOL: {(0, 1): 6, (0, 2): 3, (2, 2): 4},
    }
    for mode, table in wanted.items():
        x = ME.SparseTensor(feats, coords, quantization_mode=mode)
        assert {k: float(v) for k, v in by_place(x).items()} == table
        assert torch.equal(x.C[x.inverse_mapping.long()], coords)
        assert torch.equal(coords[x.unique_index], x.C)
    assert [len(c) for c in x.decomposed_coordinates] == [2, 0, 1]
    assert x.coordinates_at(2).tolist() == [[2]]
    assert x.features_at(2).tolist() == [[4.0]]
    ids, rows = x.coordinate_manager.origin_map(x.coordinate_map_key)
    assert ids.tolist() == [0, 2]
    assert [len(r) for r in rows] == [2, 0, 1]
    with pytest.warns(UserWarning, match="coordinates are floored to int32"):
        ME.SparseTensor(feats, coords + 0.5)


def test_arithmetic() -> None:
    x = scene()
    y = ME.SparseTensor(
        torch.randn(60, 4).double(),
        coordinate_map_key=x.coordinate_map_key,
        coordinate_manager=x.coordinate_manager,
    )
    same((x + y).F, x.F + y.F)
    same((x - 2).F, x.F - 2)
    same((x / y).F, x.F / y.F)
    kept = x.F.clone()
    x *= y
    same(x.F, kept * y.F)
    other = scene(30)
    with pytest.raises(ValueError, match="coordinate_manager must be one and the same"):
        x + other
    with pytest.raises(SyntaxError, match="must be left alone"):
        x.coordinates = y.C


@pytest.mark.parametrize("upstream", [False, True])
def test_different_coordinates_meet_on_their_union(upstream: bool) -> None:
    manager = ME.CoordinateManager(D=1, upstream_arithmetic=upstream)
    left = ME.SparseTensor(
        torch.tensor([[2.0], [3.0]]),
        torch.tensor([[0, 0], [0, 1]]).int(),
        coordinate_manager=manager,
    )
    right = ME.SparseTensor(
        torch.tensor([[5.0], [7.0]]),
        torch.tensor([[0, 1], [0, 4]]).int(),
        coordinate_manager=manager,
    )
    made = {k[1]: float(v) for k, v in by_place(left * right).items()}
    assert made == {0: 2.0 if upstream else 0.0, 1: 15.0, 4: 0.0}
    assert {k[1]: float(v) for k, v in by_place(left - right).items()} == {0: 2, 1: -2, 4: -7}
    both = ME.MinkowskiUnion()(left, right)
    assert {k[1]: float(v) for k, v in by_place(both).items()} == {0: 2, 1: 8, 4: 7}


def test_a_shared_manager_for_all_tensors() -> None:
    try:
        ME.set_sparse_tensor_operation_mode(ME.SparseTensorOperationMode.SHARE_COORDINATE_MANAGER)
        x, y = scene(20), scene(30)
        assert x.coordinate_manager is y.coordinate_manager
        assert x.coordinate_map_key != y.coordinate_map_key
        assert len(x + y) >= 30
        ME.clear_global_coordinate_manager()
        assert scene(5).coordinate_manager is not x.coordinate_manager
    finally:
        ME.clear_global_coordinate_manager()
        ME.set_sparse_tensor_operation_mode(
            ME.SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER
        )
    assert scene(5).coordinate_manager is not scene(5).coordinate_manager


def test_dense_and_back() -> None:
    x = scene(60, 5)
    dense, low, stride = x.dense(torch.Size([2, 4, 5, 5, 5]))
    assert low.tolist() == [0, 0, 0] or low.tolist() == [[0, 0, 0]]
    assert list(stride) == [1, 1, 1]
    same(dense.movedim(1, -1)[tuple(x.C.long().t())], x.F)
    assert int((dense != 0).any(1).sum()) == 60
    back = ME.to_sparse(dense)
    assert {tuple(c) for c in back.C.tolist()} == {tuple(c) for c in x.C.tolist()}
    every = ME.to_sparse_all(dense)
    assert len(every) == 2 * 125
    again = ME.MinkowskiToDenseTensor(dense.shape)(back)
    same(again, dense)
    negative = scene(20, 5, low=-3)
    with pytest.raises(ValueError, match="min_coordinate"):
        negative.dense()
    moved, low, _ = negative.dense(min_coordinate=torch.IntTensor([-3, -3, -3]))
    same(
        moved.movedim(1, -1)[(negative.C + torch.tensor([0, 3, 3, 3])).long().unbind(1)], negative.F
    )
    sparse, _, _ = x.sparse()
    assert sparse.coalesce().values().shape == (60, 4)
    flat = ME.to_sparse(torch.rand(2, 5, 5, 3), format="BXXC")
    assert flat.F.shape == (50, 3)


def test_points_at_continuous_coordinates() -> None:
    points = torch.cat([torch.zeros(40, 1), torch.rand(40, 3) * 4 - 2], 1)
    feats = torch.randn(40, 3, requires_grad=True)
    field = ME.TensorField(feats, points)
    x = field.sparse()
    cells = points.floor().int()
    for place, got in by_place(x).items():
        rows = (cells == torch.tensor(place).int()).all(1)
        torch.testing.assert_close(got, feats[rows].mean(0))
    torch.testing.assert_close(x.slice(field).F, x.F[field.inverse_mapping(x.coordinate_map_key)])
    assert x.cat_slice(field).F.shape == (40, 6)
    coarse = ME.MinkowskiConvolution(3, 5, 3, 4, dimension=3)(x)
    sliced = coarse.slice(field)
    table = by_place(coarse)
    for row, cell in enumerate(cells.tolist()):
        place = (cell[0], *(c // 4 * 4 for c in cell[1:]))
        torch.testing.assert_close(sliced.F[row], table[place])
    sliced.F.sum().backward()
    assert feats.grad is not None
    back = field.sparse(coordinate_map_key=coarse.coordinate_map_key)
    assert len(back) == len(coarse)
    splat = field.splat()
    torch.testing.assert_close(splat.F.sum(0), feats.sum(0))
    assert splat.interpolate(field).F.shape == (40, 3)
    assert ME.MinkowskiGlobalMaxPooling()(field).F.shape == (1, 3)


def test_interpolation_at_lattice_points_and_between() -> None:
    x = ME.SparseTensor(torch.tensor([[1.0], [5.0]]), torch.tensor([[0, 0], [0, 2]]).int(), 2)
    at = torch.tensor([[0, 0.0], [0, 2.0], [0, 1.0], [0, 3.0], [0, 9.0], [1, 0.0]])
    assert x.features_at_coordinates(at)[:, 0].tolist() == [1, 5, 3, 2.5, 0, 0]
    out, (inside, outside), weights = ME.MinkowskiInterpolation(True, True)(x, at)
    assert out.shape == (6, 1)
    assert len(inside) == len(outside) == len(weights)


def test_tensors_copy_and_pickle() -> None:
    x = ME.MinkowskiConvolution(4, 4, 3, 2, dimension=3).double()(scene())
    for made in (copy.deepcopy(x.detach()), pickle.loads(pickle.dumps(x.detach()))):
        assert torch.equal(made.C, x.C)
        assert torch.equal(made.F, x.F)
        assert made.coordinate_map_key == x.coordinate_map_key


# ---------------------------------------------------------------------------------- the rest


def test_functions_pass_gradient_checks() -> None:
    leaf = torch.randn(12, 2).double().requires_grad_()
    x = ME.SparseTensor(leaf, places(12, 4, 2))
    key, manager = x.coordinate_map_key, x.coordinate_manager
    conv = ME.MinkowskiConvolution(2, 3, 3, 2, dimension=2).double()
    out = conv(x)
    arguments = (x.F, conv.kernel, conv.kernel_generator, conv.convolution_mode, key)
    function = ME.MinkowskiConvolutionFunction()
    assert gradcheck(function, (*arguments, out.coordinate_map_key, manager))
    up = ME.MinkowskiConvolutionTranspose(3, 2, 3, 2, dimension=2).double()
    arguments = (out.F, up.kernel, up.kernel_generator, up.convolution_mode, out.coordinate_map_key)
    assert gradcheck(ME.MinkowskiConvolutionTransposeFunction(), (*arguments, key, manager))
    pool = ME.MinkowskiMaxPooling(3, 2, dimension=2)
    arguments = (x.F, pool.pooling_mode, pool.kernel_generator, key, out.coordinate_map_key)
    assert gradcheck(ME.MinkowskiLocalPoolingFunction(), (*arguments, manager))
    glob = ME.MinkowskiGlobalAvgPooling()
    origin = glob(x).coordinate_map_key
    assert gradcheck(
        ME.MinkowskiGlobalPoolingFunction(), (x.F, glob.pooling_mode, key, origin, manager)
    )
    mask = torch.arange(12) % 2 == 0
    kept = ME.MinkowskiPruning()(x, mask)
    assert torch.equal(kept.F, x.F[mask])
    assert gradcheck(
        ME.MinkowskiPruningFunction(), (x.F, mask, key, kept.coordinate_map_key, manager)
    )
    rows, columns = torch.tensor([0, 0, 1]).int(), torch.tensor([1, 3, 2]).int()
    values = torch.rand(3).double()
    dense = torch.zeros(2, 12).double().index_put((rows.long(), columns.long()), values)
    same(ME.spmm(rows, columns, values, [2, 12], x.F), dense @ x.F)
    assert gradcheck(ME.MinkowskiSPMMFunction(), (rows, columns, values, [2, 12], x.F))
    same(ME.spmm_average(rows, columns, [2, 12], x.F)[0], x.F[[1, 3]].mean(0))
    direct = ME.MinkowskiDirectMaxPoolingFunction()
    same(direct.apply(columns, rows, x.F, 2), torch.stack([x.F[[1, 3]].amax(0), x.F[2]]))


def test_kernel_maps_by_key_and_by_stride() -> None:
    x = scene(30, 5)
    out = ME.MinkowskiConvolution(4, 4, 3, 2, dimension=3).double()(x)
    manager = x.coordinate_manager
    maps = manager.kernel_map(1, 2, stride=2, kernel_size=3)
    offsets = cube([3, 3, 3])
    for tap, (first, second) in maps.items():
        assert torch.equal(x.C[first.long(), 1:], out.C[second.long(), 1:] + offsets[tap])
    total = sum(m.shape[1] for m in maps.values())
    near = (x.C[:, None] - out.C[None]).abs()
    assert total == int(((near[..., 0] == 0) & (near[..., 1:] <= 1).all(-1)).sum())
    again = manager.get_kernel_map(1, 2, stride=2, kernel_size=3)
    assert {k: v.tolist() for k, v in again.items()} == {k: v.tolist() for k, v in maps.items()}
    cells = manager.stride_map(x.coordinate_map_key, out.coordinate_map_key)
    assert torch.equal(x.C[cells[0], 1:] // 2 * 2, out.C[cells[1], 1:])
    assert "CoordinateManager" in repr(manager)


def test_collation_and_quantization() -> None:
    points = [np.random.default_rng(n).random((30, 3)) * 3 - 1 for n in range(2)]
    feats = [np.ones((30, 2)), np.zeros((30, 2))]
    labels = [np.arange(30), np.arange(30)]
    cells, rows, first, inverse = utils.sparse_quantize(
        points[0], feats[0], return_index=True, return_inverse=True, quantization_size=0.5
    )
    assert np.array_equal(cells.numpy()[inverse.numpy()], np.floor(points[0] / 0.5))
    assert len(rows) == len(first) == len(cells)
    twice = np.array([[0, 0], [0, 0], [0, 1]], np.int32)
    _, merged = utils.sparse_quantize(twice, labels=np.array([1, 2, 3]), ignore_label=-9)
    assert sorted(merged.tolist()) == [-9, 3]
    first, inverse = _C.quantize_np(twice)
    assert (twice[first][inverse] == twice).all()
    _, merged = utils.quantize_label(torch.from_numpy(twice), torch.tensor([1, 1, 3]).int(), -9)
    assert sorted(merged.tolist()) == [1, 3]
    batch = utils.batched_coordinates(points)
    assert batch.dtype == torch.int32
    assert torch.equal(batch[30:, 0], torch.ones(30).int())
    assert np.array_equal(batch[:30, 1:].numpy(), np.floor(points[0]))
    exact = utils.batched_coordinates(points, dtype=torch.float32)
    assert exact.dtype == torch.float32
    coords, stacked, marks = utils.sparse_collate(points, feats, labels)
    assert (len(coords), len(stacked), len(marks)) == (60, 60, 60)
    data = list(zip(points, feats, labels, strict=True))
    assert len(utils.batch_sparse_collate(data)[0]) == 60
    assert len(utils.SparseCollation(limit_numpoints=40)(data)[0]) == 30
    layer = ME.MinkowskiConvolution(2, 3, 3, dimension=3)
    utils.kaiming_normal_(layer.kernel, mode="fan_out", nonlinearity="relu")
    assert 0 < float(layer.kernel.detach().std()) < 1


def test_stacks_and_summary(capsys: Any) -> None:
    x = scene()
    branches = [ME.MinkowskiConvolution(4, 3, k, dimension=3).double() for k in (1, 3)]
    outs = [b(x).F for b in branches]
    same(ME.MinkowskiStackSum(*branches)(x).F, outs[0] + outs[1])
    same(ME.MinkowskiStackCat(*branches)(x).F, torch.cat(outs, 1))
    same(ME.MinkowskiStackMean(*branches)(x).F, (outs[0] + outs[1]) / 2)
    net = nn.Sequential(*branches[:1], ME.MinkowskiToFeature(), nn.Linear(3, 2).double())
    utils.summary(net, x)
    assert "MinkowskiConvolution" in capsys.readouterr().out


def test_what_does_not_fit_is_named() -> None:
    x = scene()
    with pytest.raises(ValueError, match=r"MinkowskiConvolution: input must be of 2 axes, got 3"):
        ME.MinkowskiConvolution(4, 3, 3, dimension=2)(x)
    with pytest.raises(TypeError, match="input must be a SparseTensor, got Tensor"):
        ME.MinkowskiConvolution(4, 3, 3, dimension=3)(x.F)
    with pytest.raises(ValueError, match=r"of 5 columns|4 channels|must be"):
        ME.MinkowskiConvolution(5, 3, 3, dimension=3)(x)
    with pytest.raises(ValueError, match="kernel_size must be > 0"):
        ME.MinkowskiConvolution(4, 3, dimension=3)
    with pytest.raises(DeprecationWarning, match="use CoordinateManager"):
        ME.CoordsManager(3)


# -------------------------------------------------------------------- tensors as torch's tensors


def three_rows(field: bool = False) -> Any:
    """Two rows of sample 1 around one of sample 0."""
    coords = torch.tensor([[1, 5, 6], [0, 2, 3], [1, 0, 9]], dtype=torch.int32)
    rows = torch.arange(6.0).reshape(3, 2)
    return ME.TensorField(rows, coords.float()) if field else ME.SparseTensor(rows, coords)


@pytest.mark.parametrize("field", [False, True])
def test_parts_of_a_tensor_by_sample(field: bool) -> None:
    x = three_rows(field)
    assert [rows.tolist() for rows in x.decomposition_permutations] == [[1], [0, 2]]
    assert [c.tolist() for c in x.decomposed_coordinates] == [[[2, 3]], [[5, 6], [0, 9]]]
    assert [f.tolist() for f in x.decomposed_features] == [[[2, 3]], [[0, 1], [4, 5]]]
    coords, features = x.decomposed_coordinates_and_features
    for sample in (0, 1):
        here, rows = x.coordinates_and_features_at(sample)
        assert torch.equal(here, coords[sample])
        assert torch.equal(here, x.coordinates_at(sample))
        assert torch.equal(rows, features[sample])
        assert torch.equal(rows, x.features_at(sample))


@pytest.mark.parametrize("field", [False, True])
def test_a_tensor_answers_as_torchs_do(field: bool) -> None:
    x = three_rows(field)
    assert (len(x), tuple(x.shape), x.size(1), x.D, x.dimension) == (3, (3, 2), 2, 2, 2)
    assert (x.dtype, x.device.type, x.get_device()) == (torch.float32, "cpu", -1)
    assert x.double() is x
    assert x.dtype == torch.float64
    assert x.float().dtype == torch.float32
    assert not x.requires_grad
    x.requires_grad_()
    assert x.requires_grad
    assert x.detach() is x
    assert not x.requires_grad
    assert repr(x).startswith(f"{type(x).__name__}(\n  coordinates=tensor([[")
    for name in ("coordinates", "C", "tensor_stride", "dimension", "D"):
        with pytest.raises(SyntaxError, match="must be left alone, got an assignment"):
            setattr(x, name, 3)


@pytest.mark.parametrize("field", [False, True])
def test_arithmetic_in_place_needs_the_same_sites(field: bool) -> None:
    x = three_rows(field)
    start, other = x.F.clone(), x * 2.0 + 1.0
    steps = {"__iadd__": torch.add, "__isub__": torch.sub, "__imul__": torch.mul}
    for name, plain in {**steps, "__itruediv__": torch.div}.items():
        expected = plain(x.F, start * 2 + 1)
        assert getattr(x, name)(other) is x
        assert torch.equal(x.F, expected)
        with pytest.raises(ValueError, match="coordinate_manager"):
            getattr(x, name)(three_rows(field))
        with pytest.raises(TypeError, match=rf"operand must be a {type(x).__name__}, got float"):
            getattr(x, name)(2.0)
    with pytest.raises(TypeError, match=rf"operand must be a {type(x).__name__} or a tensor, got"):
        x + "1"


def test_tensors_of_other_sites_add_over_the_union() -> None:
    x = three_rows()
    other = ME.SparseTensor(
        torch.ones(1, 2),
        torch.tensor([[0, 2, 4]], dtype=torch.int32),
        coordinate_manager=x._manager,
    )
    made = by_place(x + other)
    assert made.keys() == by_place(x).keys() | by_place(other).keys()
    assert made[0, 2, 4].tolist() == [1, 1]
    assert made[1, 5, 6].tolist() == [0, 1]
    with pytest.raises(ValueError, match="coordinate_map_key"):
        x += other


def test_what_makes_no_tensor_is_named() -> None:
    x = three_rows()
    rows, coords = x.F, x.C
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "coordinates must be given, or a key together with its coordinate_manager, got neit"),
        ({"coordinates": coords, "coordinate_map_key": x.coordinate_map_key,
          "coordinate_manager": x._manager}, "None where a coordinate map key is given, got both"),
        ({"coordinates": coords[:2]}, "features must be of 2 rows as coordinates has, got 3 rows"),
    ]  # fmt: skip
    for given, words in wrong:
        with pytest.raises(ValueError, match=words):
            ME.SparseTensor(rows, **given)
    with pytest.raises(TypeError, match="X must be a TensorField or SparseTensor, got Tensor"):
        x.slice(rows)
    with pytest.raises(TypeError, match=r"query_coordinates must be torch\.float32, got"):
        x.features_at_coordinates(coords)
    assert x.dense(min_coordinate=torch.tensor([0, 0]))[0].shape == (2, 2, 6, 10)
    low = ME.SparseTensor(rows, coords - torch.tensor([[0, 9, 9]], dtype=torch.int32))
    with pytest.raises(ValueError, match=r"coordinates must be >= 0 for dense\(\), got \[-9, -6\]"):
        low.dense()
