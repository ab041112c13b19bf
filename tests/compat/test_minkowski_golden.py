"""Every recorded MinkowskiEngine vector, through the stand-in."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
import torch
from compat.vectors import FORWARD, GRADIENT, close, order, tensor
from golden import reader
from golden.reader import Vector

import sparse3d.compat.minkowski as ME
from sparse3d import _registry

LAYERS = {"conv", "transpose", "generative", "depthwise conv"}
NAMES = [n for n in reader.names("me") if Vector(n).meta["op"] in LAYERS]


def given(vector: Vector, side: str = "in", **more: object) -> ME.SparseTensor:
    features = tensor(vector, f"{side}_feats").requires_grad_()
    return ME.SparseTensor(features, tensor(vector, f"{side}_coords"), **more)  # type: ignore[arg-type]


def layer_of(vector: Vector) -> torch.nn.Module:
    meta = vector.meta
    stored = vector["weight"]
    bias, axes = "bias" in vector, vector["in_coords"].shape[1] - 1
    if meta["op"] == "depthwise conv":
        layer = ME.MinkowskiChannelwiseConvolution(stored.shape[1], 3, bias=bias, dimension=axes)
    else:
        kind = {
            "conv": ME.MinkowskiConvolution,
            "transpose": ME.MinkowskiConvolutionTranspose,
            "generative": ME.MinkowskiGenerativeConvolutionTranspose,
        }[meta["op"]]
        shape: dict[str, object] = {
            "kernel_size": meta["kernel"],
            "stride": meta.get("stride", 1),
            "dilation": meta.get("dilation", 1),
        }
        if meta.get("region") == "HYPER_CROSS":
            cross = ME.RegionType.HYPER_CROSS
            made = ME.KernelGenerator(meta["kernel"], region_type=cross, dimension=axes)
            shape = {"kernel_generator": made}
        if meta.get("kw"):
            shape["expand_coordinates"] = True
        layer = kind(*stored.shape[-2:], bias=bias, dimension=axes, **shape)
    state = {"kernel": tensor(vector, "weight")}
    if bias:
        state["bias"] = tensor(vector, "bias")
    layer.load_state_dict(state)
    return layer


def input_of(vector: Vector) -> ME.SparseTensor:
    """The recorded input; of a transposed layer, on the coarse set made from the fine one."""
    stride = vector.meta.get("in_tensor_stride", 1)
    if "orig_coords" not in vector or vector.meta["op"] == "generative":
        return given(vector, tensor_stride=stride)
    fine = tensor(vector, "orig_coords")
    x = ME.SparseTensor(torch.zeros(len(fine), 1), fine)
    key = x.coordinate_manager.stride(x.coordinate_map_key, stride)
    rows = order(vector["in_coords"], x.coordinate_manager.get_coordinates(key))
    features = tensor(vector, "in_feats")[rows].requires_grad_()
    return ME.SparseTensor(
        features, coordinate_map_key=key, coordinate_manager=x.coordinate_manager
    )


@pytest.mark.parametrize("name", NAMES)
def test_layers(name: str, backend: str) -> None:
    vector = Vector(name)
    with _registry.force(backend):
        layer, x = layer_of(vector), input_of(vector)
        out = layer(x)
        rows = order(vector["out_coords"], out.C)
        close(out.F, tensor(vector, "out_feats")[rows], FORWARD)
        out.F.backward(tensor(vector, "grad_out")[rows])
    assert out.tensor_stride == vector.meta.get("out_tensor_stride", [1] * out.D)
    grad_in = tensor(vector, "grad_in")[order(vector["in_coords"], x.C)]
    close(x.F.grad, grad_in, GRADIENT)
    close(layer.kernel.grad, tensor(vector, "grad_weight"), GRADIENT)
    if "grad_bias" in vector:
        close(layer.bias.grad, tensor(vector, "grad_bias"), GRADIENT)


POOLS = {"MinkowskiSumPooling", "MinkowskiAvgPooling", "MinkowskiMaxPooling"}


@pytest.mark.parametrize("name", [n for n in reader.names("me") if Vector(n).meta["op"] in POOLS])
def test_pools(name: str) -> None:
    vector = Vector(name)
    meta = vector.meta
    x = given(vector)
    kind = getattr(ME, meta["op"])
    out = kind(kernel_size=meta["kernel"], stride=meta["stride"], dimension=meta["ndim"])(x)
    rows = order(vector["out_coords"], out.C)
    close(out.F, tensor(vector, "out_feats")[rows], FORWARD)
    out.F.backward(tensor(vector, "grad_out")[rows])
    close(x.F.grad, tensor(vector, "grad_in")[order(vector["in_coords"], x.C)], GRADIENT)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("me_globalavg", "MinkowskiGlobalAvgPooling"), ("me_globalmax", "MinkowskiGlobalMaxPooling")],
)
def test_global_pools(name: str, kind: str) -> None:
    vector = Vector(name)
    x = given(vector)
    out = getattr(ME, kind)()(x)
    rows = order(vector["out_coords"], out.C)
    assert out.tensor_stride == [0, 0, 0]
    close(out.F, tensor(vector, "out_feats")[rows], FORWARD)
    out.F.backward(tensor(vector, "grad_out")[rows])
    close(x.F.grad, tensor(vector, "grad_in"), GRADIENT)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("me_broadcast_add", "MinkowskiBroadcastAddition"),
        ("me_broadcast_mul", "MinkowskiBroadcastMultiplication"),
    ],
)
def test_broadcasts(name: str, kind: str) -> None:
    vector = Vector(name)
    x = given(vector)
    glob = ME.MinkowskiGlobalAvgPooling()(x)
    rows = order(vector["glob_coords"], glob.C)
    features = tensor(vector, "glob_feats")[rows].requires_grad_()
    out = getattr(ME, kind)()(x, glob._like(features))
    close(out.F, tensor(vector, "out_feats"), FORWARD)
    out.F.backward(tensor(vector, "grad_out"))
    close(x.F.grad, tensor(vector, "grad_in"), GRADIENT)
    close(features.grad, tensor(vector, "grad_glob")[rows], GRADIENT)


def test_pruning() -> None:
    vector = Vector("me_pruning")
    x = given(vector)
    out = ME.MinkowskiPruning()(x, tensor(vector, "mask").bool())
    rows = order(vector["out_coords"], out.C)
    close(out.F, tensor(vector, "out_feats")[rows], FORWARD)
    out.F.backward(tensor(vector, "grad_out")[rows])
    close(x.F.grad, tensor(vector, "grad_in"), GRADIENT)


def two_of(vector: Vector, **more: object) -> tuple[ME.SparseTensor, ME.SparseTensor]:
    manager = ME.CoordinateManager(D=3, **more)  # type: ignore[arg-type]
    first = given(vector, "a", coordinate_manager=manager)
    return first, given(vector, "b", coordinate_manager=manager)


def test_sum_of_different_coordinates() -> None:
    vector = Vector("me_arith_add")
    first, second = two_of(vector)
    for out in (first + second, ME.MinkowskiUnion()(first, second)):
        rows = order(vector["out_coords"], out.C)
        close(out.F, tensor(vector, "out_feats")[rows], FORWARD)
    out.F.backward(tensor(vector, "grad_out")[rows])
    close(first.F.grad, tensor(vector, "grad_a"), GRADIENT)
    close(second.F.grad, tensor(vector, "grad_b"), GRADIENT)


def test_product_of_different_coordinates_as_documented_and_as_upstream() -> None:
    """Upstream keeps `a` where `b` is absent; its documentation says 0."""
    vector = Vector("me_arith_mul")
    first, second = two_of(vector, upstream_arithmetic=True)
    out = first * second
    rows = order(vector["out_coords"], out.C)
    close(out.F, tensor(vector, "out_feats")[rows], FORWARD)
    out.F.backward(tensor(vector, "grad_out")[rows])
    close(first.F.grad, tensor(vector, "grad_a"), GRADIENT)
    close(second.F.grad, tensor(vector, "grad_b"), GRADIENT)
    first, second = two_of(vector)
    documented = first * second
    both = torch.from_numpy(
        (oracle.lookup(vector["a_coords"], documented.C.numpy()) >= 0)
        & (oracle.lookup(vector["b_coords"], documented.C.numpy()) >= 0)
    )
    upstream = tensor(vector, "out_feats")[order(vector["out_coords"], documented.C)]
    close(documented.F, torch.where(both[:, None], upstream, 0), FORWARD)


def test_interpolation() -> None:
    vector = Vector("me_interpolation")
    x = given(vector)
    query = tensor(vector, "query")
    for out in (x.features_at_coordinates(query), ME.MinkowskiInterpolation()(x, query)):
        close(out, tensor(vector, "out_feats"), FORWARD)
    out.backward(tensor(vector, "grad_out"))
    close(x.F.grad, tensor(vector, "grad_in"), GRADIENT)
    layer = ME.MinkowskiInterpolation(return_kernel_map=True, return_weights=True)
    out, (in_map, out_map), weights = layer(x, query)
    rebuilt = torch.zeros_like(out).index_add(0, out_map, x.F[in_map.long()] * weights[:, None])
    close(out, rebuilt, FORWARD)


MODES = {
    "me_field_avg": ME.SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE,
    "me_field_sum": ME.SparseTensorQuantizationMode.UNWEIGHTED_SUM,
    "me_field_rand": ME.SparseTensorQuantizationMode.RANDOM_SUBSAMPLE,
}


@pytest.mark.parametrize("name", MODES)
def test_fields(name: str) -> None:
    vector = Vector(name)
    features = tensor(vector, "field_feats").requires_grad_()
    field = ME.TensorField(features, tensor(vector, "field_coords"), quantization_mode=MODES[name])
    out = field.sparse()
    rows = order(vector["out_coords"], out.C)
    wanted = tensor(vector, "out_feats")[rows]
    if name == "me_field_rand":  # which point stands for a cell is the peer's own
        points = field.inverse_mapping(out.coordinate_map_key)
        near = [features[points == row] for row in range(len(out))]
        assert all(bool((f == x).all(1).any()) for f, x in zip(near, out.F, strict=True))
        return
    close(out.F, wanted, FORWARD)
    out.F.backward(tensor(vector, "grad_out")[rows])
    close(features.grad, tensor(vector, "grad_in"), GRADIENT)
    if "sliced" in vector:
        close(out.slice(field).F, tensor(vector, "sliced"), FORWARD)


def test_sparse_quantize() -> None:
    """Coordinates are the peer's; of its labels, 57 sit on the wrong voxel, so brute force says."""
    vector = Vector("me_sparse_quantize")
    points = vector["points"] if "points" in vector else vector["in_points"]
    labels = vector["labels"] if "labels" in vector else vector["in_labels"]
    size = vector.meta.get("quantization_size", 0.4)
    coords, made, index, inverse = ME.utils.sparse_quantize(
        points,
        labels=labels,
        quantization_size=size,
        return_index=True,
        return_inverse=True,
    )
    order(vector["out_coords"] if "out_coords" in vector else vector["coords"], coords)
    cells = np.floor(points / size).astype(np.int32)
    np.testing.assert_array_equal(coords.numpy(), cells[index])
    np.testing.assert_array_equal(coords.numpy()[inverse], cells)
    for cell in range(len(coords)):
        seen = np.unique(labels[inverse.numpy() == cell])
        assert made[cell] == (seen[0] if len(seen) == 1 else -100)
