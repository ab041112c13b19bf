"""`MinkowskiEngineBackend._C`: the functions and the manager that third-party layers call, by the
layers they are the inside of."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import sparse3d.compat.minkowski as ME
from sparse3d.compat.minkowski._backend import _C
from sparse3d.compat.minkowski.MinkowskiCommon import get_minkowski_function

NONE = torch.empty(0, dtype=torch.int32)
CUBE = ME.RegionType.HYPER_CUBE
COORDS = [[0, 0, 0], [0, 1, 2], [0, 2, 3], [1, 0, 1], [1, 3, 3], [1, 2, 2]]


def scene(stride: int = 1) -> Any:
    torch.manual_seed(0)
    features = torch.randn(len(COORDS), 3, dtype=torch.float64, requires_grad=True)
    coords = torch.tensor(COORDS).int() * torch.tensor([1, stride, stride]).int()
    return ME.SparseTensor(features, coords, tensor_stride=stride)


def unset() -> Any:
    return ME.CoordinateMapKey(3)


def sizes(size: int, stride: int = 1, dilation: int = 1) -> tuple[list[int], ...]:
    return [size] * 2, [stride] * 2, [dilation] * 2


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("expand", [False, True])
def test_convolution_functions_are_the_layers_inside(transposed: bool, expand: bool) -> None:
    name = "ConvolutionTranspose" if transposed else "Convolution"
    x = scene(2)
    layer = getattr(ME, f"Minkowski{name}")(
        3, 4, kernel_size=3, stride=2, expand_coordinates=expand, dimension=2
    ).double()
    wanted = layer(x)
    grad = torch.randn_like(wanted.F)
    wanted.F.backward(grad)
    shape = (*sizes(3, 2), CUBE, NONE)
    mode, key, manager = layer.convolution_mode, unset(), x.coordinate_manager._manager
    out = get_minkowski_function(f"{name}Forward", x.F)(
        *(x.F, layer.kernel, *shape, expand, mode, x.coordinate_map_key, key, manager)
    )
    assert not out.requires_grad
    assert torch.equal(x.coordinate_manager.get_coordinates(key), wanted.C)
    assert torch.equal(out, wanted.F)
    rows, kernel = getattr(_C, f"{name}BackwardCPU")(
        *(x.F, grad, layer.kernel, *shape, mode, x.coordinate_map_key, key, manager)
    )
    assert torch.allclose(rows, x.F.grad)
    assert torch.allclose(kernel, layer.kernel.grad)


@pytest.mark.parametrize("kind", ["Sum", "Avg", "Max"])
def test_pooling_functions_are_the_layers_inside(kind: str) -> None:
    x = scene()
    pool = getattr(ME, f"Minkowski{kind}Pooling")(kernel_size=3, stride=2, dimension=2)
    wanted = pool(x)
    grad = torch.randn_like(wanted.F)
    wanted.F.backward(grad)
    key, manager = unset(), x.coordinate_manager._manager
    shape, keys = (*sizes(3, 2), CUBE, NONE), (x.coordinate_map_key, key, manager)
    out, counts = _C.LocalPoolingForwardCPU(x.F, *shape, pool.pooling_mode, *keys)
    assert torch.equal(out, wanted.F)
    pairs = manager.kernel_map(x.coordinate_map_key, key, *shape, False, False).values()
    met = torch.bincount(torch.cat([rows[1] for rows in pairs]), minlength=len(out))
    assert torch.equal(counts, met.double())
    rows = _C.LocalPoolingBackwardCPU(x.F, grad, counts, *shape, pool.pooling_mode, *keys)
    assert torch.allclose(rows, x.F.grad)


def test_unpooling_functions_are_the_layer_inside() -> None:
    x = scene(2)
    layer = ME.MinkowskiPoolingTranspose(kernel_size=2, stride=2, dimension=2)
    wanted = layer(x)
    grad = torch.randn_like(wanted.F)
    wanted.F.backward(grad)
    key, manager = unset(), x.coordinate_manager._manager
    shape, mode = (*sizes(2, 2), CUBE, NONE), layer.pooling_mode
    keys = (x.coordinate_map_key, key, manager)
    out, counts = _C.LocalPoolingTransposeForwardCPU(x.F, *shape, False, mode, *keys)
    assert torch.equal(out, wanted.F)
    assert torch.equal(counts, torch.ones(len(out)).double())
    rows = _C.LocalPoolingTransposeBackwardCPU(x.F, grad, counts, *shape, mode, *keys)
    assert torch.allclose(rows, x.F.grad)


@pytest.mark.parametrize("kind", ["Sum", "Avg", "Max"])
def test_global_pools_and_broadcasts(kind: str) -> None:
    x = scene()
    pool = getattr(ME, f"MinkowskiGlobal{kind}Pooling")()
    wanted = pool(x)
    grad = torch.randn_like(wanted.F)
    wanted.F.backward(grad)
    key, manager = unset(), x.coordinate_manager._manager
    keys = (pool.pooling_mode, x.coordinate_map_key, key, manager)
    out, counts = _C.GlobalPoolingForwardCPU(x.F, *keys)
    assert torch.equal(out, wanted.F)
    assert counts.tolist() == [3, 3]
    assert torch.allclose(_C.GlobalPoolingBackwardCPU(x.F, grad, counts, *keys), x.F.grad)
    more = (ME.BroadcastMode.ELEMENTWISE_MULTIPLICATION, x.coordinate_map_key, key, manager)
    spread = out[x.C[:, 0].long()]
    assert torch.allclose(_C.BroadcastForwardCPU(x.F, out, *more), x.F * spread)
    upper = torch.randn_like(x.F)
    rows, samples = _C.BroadcastBackwardCPU(x.F, out, upper, *more)
    assert torch.allclose(rows, upper * spread)
    by_sample = [(upper * x.F)[x.C[:, 0] == b].sum(0) for b in (0, 1)]
    assert torch.allclose(samples, torch.stack(by_sample))


def test_pruning_interpolation_and_listed_maxima() -> None:
    x = scene()
    key, manager = unset(), x.coordinate_manager._manager
    keep = torch.tensor([True, False, True, False, True, True])
    out = _C.PruningForwardCPU(x.F, keep, x.coordinate_map_key, key, manager)
    assert torch.equal(out, x.F[keep])
    back = _C.PruningBackwardCPU(out, x.coordinate_map_key, key, manager)
    assert torch.equal(back, x.F * keep[:, None])
    samples = torch.tensor([[0, 1.0, 2.0], [1, 2.5, 2.5], [0, 9.0, 9.0]]).double()
    rows, near, at, weights = _C.InterpolationForwardCPU(
        x.F, samples, x.coordinate_map_key, manager
    )
    assert torch.allclose(rows[0], x.F[1])
    assert torch.allclose(rows[1], 0.25 * (x.F[4] + x.F[5]))
    grad = torch.randn_like(rows)
    found = _C.InterpolationBackwardCPU(grad, near, at, weights, x.coordinate_map_key, manager)
    (wanted,) = torch.autograd.grad(ME.MinkowskiInterpolation()(x, samples), x.F, grad)
    assert torch.allclose(found, wanted)
    pairs = torch.tensor([0, 1, 2, 0]).int(), torch.tensor([1, 1, 0, 3]).int()
    best, where = _C.direct_max_pool_fw(*pairs, x.F, 4, False)
    assert torch.equal(best[1], torch.maximum(x.F[0], x.F[1]))
    assert not best[2].any()
    grad = torch.randn_like(best)
    rows = x.F.detach().requires_grad_()
    (wanted,) = torch.autograd.grad(
        ME.MinkowskiDirectMaxPoolingFunction.apply(*pairs, rows, 4), rows, grad
    )
    assert torch.allclose(_C.direct_max_pool_bw(grad, where, len(rows)), wanted)


def test_a_function_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match="name must be that of a function"):
        get_minkowski_function("Nothing", torch.zeros(1))
    assert not hasattr(_C, "ConvolutionForward")
    assert hasattr(_C, "ConvolutionForwardGPU") == torch.cuda.is_available()


def test_the_manager_inside_has_the_same_sets() -> None:
    x = scene()
    outer, inner = x.coordinate_manager, x.coordinate_manager._manager
    key = x.coordinate_map_key
    assert inner == outer._manager
    coarse = inner.stride(key, [2, 2], "")
    assert coarse == outer.stride(key, 2)
    assert inner.get_coordinate_map_keys([2, 2]) == [coarse]
    assert inner.size(key) == len(x)
    rows, cells = inner.stride_map(key, coarse)
    assert torch.equal(
        x.C[rows] // torch.tensor([1, 2, 2]) * torch.tensor([1, 2, 2]),
        outer.get_coordinates(coarse)[cells],
    )
    by_size_then_stride = inner.kernel_map(
        key, coarse, [3, 3], [2, 2], [1, 1], CUBE, NONE, False, False
    )
    by_stride_then_size = outer.kernel_map(key, coarse, 2, 3)
    assert by_size_then_stride.keys() == by_stride_then_size.keys()
    for tap, found in by_size_then_stride.items():
        assert torch.equal(found, by_stride_then_size[tap])
    samples = torch.tensor([[0, 1.0, 2.0]])
    for a, b in zip(
        inner.interpolation_map_weight(samples, key),
        outer.interpolation_map_weight(key, samples),
        strict=True,
    ):
        assert torch.equal(a, b)
    assert inner.origin_map_size() == 2
    stride, name = outer.get_unique_coordinate_map_key([2, 2])
    made, _ = outer.insert_and_map(torch.zeros((1, 3)).int(), stride, name)
    assert made.get_key() == ([2, 2], name)
    assert outer.get_unique_coordinate_map_key([2, 2])[1] != name
    field = inner.insert_field(torch.tensor([[0, 0.5, 1.5], [1, 0.5, 0.5]]), [1, 1], "")
    sparse, _ = inner.field_to_sparse_insert_and_map(field, [1, 1])
    assert inner.field_to_sparse_keys(field.get_key()) == [sparse]
    assert inner.exists_field_to_sparse(field, sparse)


def test_a_manager_without_a_number_of_axes_takes_that_of_its_first_set() -> None:
    manager = _C.CoordinateMapManagerCPU(_C.MinkowskiAlgorithm.DEFAULT, 2)
    assert manager.get_coordinate_map_keys([1, 1]) == []
    with pytest.raises(ValueError, match="coordinate manager must be one with coordinates"):
        manager.origin()
    key, (first, inverse) = manager.insert_and_map(
        torch.tensor(COORDS + COORDS[:1]).int(), [1, 1], ""
    )
    assert manager.get_coordinates(key).tolist() == COORDS
    assert (len(first), inverse[-1]) == (6, 0)


def test_sets_at_stride_zero_are_not_the_origin() -> None:
    x = scene()
    key, _ = x.coordinate_manager.insert_and_map(x.C[:2], [0, 0])
    layer = ME.MinkowskiConvolution(3, 2, kernel_size=3, dimension=2).double()
    y = layer(x, key)
    assert torch.allclose(y.F, layer(x).F[:2])
    assert len(ME.MinkowskiGlobalSumPooling()(x)) == 2
    z = scene(2)
    up = ME.MinkowskiConvolutionTranspose(3, 2, kernel_size=2, stride=2, dimension=2).double()
    with pytest.raises(ValueError, match="tensor stride of the finer set must be > 0"):
        up(z, z.coordinate_manager.insert_and_map(x.C[:2], [0, 0])[0])


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("MinkowskiSparseTensor", "CoordinateMapKey SparseTensorOperationMode"),
        ("MinkowskiPooling", "get_minkowski_function save_ctx KernelGenerator"),
        ("MinkowskiNonlinearity", "MinkowskiModuleBase SparseTensor TensorField"),
        ("MinkowskiTensorField", "COORDINATE_KEY_DIFFERENT_ERROR set_global_coordinate_manager"),
        ("MinkowskiNormalization", "BroadcastMode MinkowskiGlobalAvgPooling TensorField"),
        ("utils.init", "_calculate_fan_in_and_fan_out _calculate_correct_fan kaiming_normal_"),
    ],
)
def test_names_are_where_the_peer_imports_them(module: str, names: str) -> None:
    home = importlib.import_module(f"sparse3d.compat.minkowski.{module}")
    for name in names.split():
        assert getattr(home, name) is not None
    assert ME.MinkowskiFunctional.SparseTensor is ME.SparseTensor


def test_fans_of_kernels_and_matrices() -> None:
    init = importlib.import_module("sparse3d.compat.minkowski.utils.init")
    assert init._calculate_fan_in_and_fan_out(torch.zeros(27, 2, 3)) == (54, 81)
    assert init._calculate_correct_fan(torch.zeros(5, 7), "FAN_OUT") == 5
    with pytest.raises(ValueError, match="mode must be one of"):
        init._calculate_correct_fan(torch.zeros(5, 7), "fan")


def test_functional_forms_can_be_wrapped_by_hand() -> None:
    x = scene()
    y = ME.MinkowskiFunctional._wrap_tensor(x, x.F * 2)
    assert y.coordinate_map_key == x.coordinate_map_key
    assert torch.equal(y.F, x.F * 2)
