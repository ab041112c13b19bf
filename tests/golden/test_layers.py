"""The recorded layers of spconv through ``sparse3d.nn``, weights in spconv's own storage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from golden import reader
from golden.reader import Vector

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, add, group_points, quantize, voxelize

FORWARD, GRADIENT = 1e-5, 1e-4


def _tensor(vector: Vector, shape: Any, features: torch.Tensor | None = None) -> SparseConvTensor:
    coords = torch.from_numpy(vector["in_coords"])
    rows = torch.from_numpy(vector["in_feats"]) if features is None else features
    return SparseConvTensor(rows, coords, shape, vector.meta.get("batch", 3))


def _close(actual: Any, expected: oracle.Array, bound: float) -> None:
    actual = actual.detach().numpy()
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max(initial=0.0) <= bound


def _layer(vector: Vector) -> Any:
    """The recorded layer, loaded through ``load_state_dict``."""
    meta, weight = vector.meta, torch.from_numpy(vector["weight"])
    make = getattr(spnn, meta["cls"])
    numbers: dict[str, Any] = {"kernel_size": meta["kernel"], "bias": "bias" in vector}
    if meta["op"] == "inverse":
        numbers["indice_key"] = "down"
    else:
        numbers |= {"stride": meta["stride"], "padding": meta["padding"]}
        numbers |= {"dilation": meta["dilation"]}
    layer = make(weight.shape[-1], weight.shape[0], **numbers)
    state = {"weight": weight}
    if "bias" in vector:
        state["bias"] = torch.from_numpy(vector["bias"])
    layer.load_state_dict(state, strict=True)
    return layer


LAYERS = [n for n in reader.names("spconv") if "cls" in Vector(n).meta and "pool" not in n]


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    vector = Vector(name)
    meta = vector.meta
    layer = _layer(vector)
    x = torch.from_numpy(vector["in_feats"]).requires_grad_()
    if meta["op"] == "inverse":
        out = _inverse(vector, layer, x)
    else:
        out = layer(_tensor(vector, meta["in_shape"], x))
    rows = oracle.match_rows(vector["out_coords"], out.indices.numpy())
    assert out.spatial_shape == meta["out_shape"]
    _close(out.features, vector["out_feats"][rows], FORWARD)
    torch.autograd.backward(out.features, torch.from_numpy(vector["grad_out"][rows]))
    _close(x.grad, vector["grad_in"], GRADIENT)
    _close(layer.weight.grad, vector["grad_weight"], GRADIENT)
    if "bias" in vector:
        _close(layer.bias.grad, vector["grad_bias"], GRADIENT)
    if meta["op"] in ("subm", "inverse"):
        np.testing.assert_array_equal(out.indices, vector["out_coords"])


def _inverse(vector: Vector, layer: Any, x: torch.Tensor) -> SparseConvTensor:
    """Go down first, then hand the recorded coarse rows to the inverse layer."""
    meta = vector.meta
    fine = torch.from_numpy(vector["fine_coords"])
    top = SparseConvTensor(torch.zeros(len(fine), 1), fine, meta["out_shape"], meta["batch"])
    down = getattr(spnn, meta["cls"].replace("Inverse", ""))(
        1,
        1,
        kernel_size=meta["kernel"],
        stride=meta["stride"],
        padding=meta["padding"],
        indice_key="down",
    )
    coarse = down(top)
    order = oracle.match_rows(vector["in_coords"], coarse.indices.numpy())
    out: SparseConvTensor = layer(coarse.replace_feature(x[torch.from_numpy(order).long()]))
    return out


@pytest.mark.parametrize("name", [n for n in reader.names("spconv") if "maxpool" in n])
@pytest.mark.parametrize("floor_at_zero", [False, True])
def test_max_pool(name: str, floor_at_zero: bool) -> None:
    vector = Vector(name)
    meta = vector.meta
    pool = spnn.SparseMaxPool3d(
        meta["kernel"], meta["stride"], meta["padding"], floor_at_zero=floor_at_zero
    )
    x = torch.from_numpy(vector["in_feats"]).requires_grad_()
    out = pool(_tensor(vector, meta["in_shape"], x))
    rows = oracle.match_rows(vector["out_coords"], out.indices.numpy())
    expected = vector["out_feats" if floor_at_zero else "true_max"][rows]
    _close(out.features, expected, FORWARD)
    if floor_at_zero:
        torch.autograd.backward(out.features, torch.from_numpy(vector["grad_out"][rows]))
        _close(x.grad, vector["grad_in"], GRADIENT)


def test_union_add() -> None:
    vector = Vector("spconv_sparse_add")
    parts, leaves = [], []
    for side in "ab":
        coords = torch.from_numpy(vector[f"{side}_coords"])
        leaves.append(torch.from_numpy(vector[f"{side}_feats"]).requires_grad_())
        shape = [int(vector["out_coords"][:, axis].max()) + 1 for axis in (1, 2, 3)]
        parts.append(SparseConvTensor(leaves[-1], coords, shape, 4))
    for out in (add(*parts), parts[0] + parts[1]):
        rows = oracle.match_rows(vector["out_coords"], out.indices.numpy())
        _close(out.features, vector["out_feats"][rows], FORWARD)
        back = torch.autograd.grad(out.features, leaves, torch.from_numpy(vector["grad_out"][rows]))
        _close(back[0], vector["grad_a"], GRADIENT)
        _close(back[1], vector["grad_b"], GRADIENT)


def test_dense() -> None:
    vector = Vector("spconv_dense")
    x = SparseConvTensor(
        torch.from_numpy(vector["in_feats"]), torch.from_numpy(vector["in_coords"]), [8, 8, 8], 2
    )
    np.testing.assert_array_equal(x.dense(), vector["dense"])
    np.testing.assert_array_equal(x.dense(channels_first=False), vector["dense_channels_last"])
    rows = oracle.match_rows(
        vector["in_coords"], SparseConvTensor.from_dense(x.dense(False)).indices.numpy()
    )
    assert len(rows) == len(x)


def test_points_to_voxels() -> None:
    vector = Vector("spconv_ptv_basic")
    meta = vector.meta
    groups = group_points(
        torch.from_numpy(vector["points"]),
        meta["vsize_xyz"],
        meta["range_xyz"],
        meta["max_voxels"],
        meta["max_points"],
    )
    np.testing.assert_array_equal(groups.indices, vector["coords"])
    np.testing.assert_array_equal(groups.points, vector["voxels"])
    np.testing.assert_array_equal(groups.counts, vector["num"])
    np.testing.assert_array_equal(groups.voxel_ids, vector["pc_voxel_id"])


# ----------------------------------------------------------------------------- external references


@pytest.mark.data
def test_spconvs_own_voxels_of_a_real_scan(shared: Path) -> None:
    """125,562 voxels of 198,130 points in float32 arithmetic, the first point of each in order."""
    folder = shared / "data" / "sparse_ref"
    points = torch.from_numpy(np.load(folder / "spconv_benchmark_pc.npz")["pc"])
    with np.load(folder / "spconv_voxelized_reference.npz") as file:
        coords, voxels = file["coords"], file["voxels"]
    bounds = [-80.0, -80.0, -2.0, 80.0, 80.0, 6.0]
    groups = group_points(points, [0.1] * 3, bounds, 1 << 20, 1)
    np.testing.assert_array_equal(groups.indices, coords[:, 1:])
    np.testing.assert_array_equal(groups.points[:, 0], voxels)

    cells = quantize(points, 0.1, bounds[:3])
    limit = torch.tensor([1600, 1600, 80])
    inside = ((cells >= 0) & (cells < limit)).all(1)
    zyx = cells[inside].flip(1)
    batched = torch.cat([zyx.new_zeros(len(zyx), 1), zyx], 1)
    made = voxelize(points[inside], batched, "first")
    np.testing.assert_array_equal(made.indices, coords)
    np.testing.assert_array_equal(made.features, voxels)
    wide = quantize(points.double(), 0.1, bounds[:3])
    assert (wide != cells).any(), "float64 arithmetic gives other voxels: the dtype must decide"


@pytest.mark.data
def test_published_value_of_a_3x3x3_layer(shared: Path) -> None:
    file = shared / "data" / "sparse_ref" / "openvino_sparse_conv_published_value.json"
    published = json.loads(file.read_text())
    points = torch.tensor(published["input_positions"])
    cells = quantize(points, published["voxel_size"]).flip(1)  # the kernel is [kz][ky][kx]
    coords = torch.cat([cells.new_zeros(len(cells), 1), cells], 1)
    layer = spnn.SubMConv3d(1, 1, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(1.0, 28.0).reshape(1, 3, 3, 3, 1))
    x = SparseConvTensor(torch.tensor(published["features"])[:, None], coords, [5, 5, 5], 1)
    assert layer(x).features.flatten().tolist() == published["expected_output"]
