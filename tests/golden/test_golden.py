"""The peers' recorded layers, solved by the oracle and by the ops of ``sparse3d``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import oracle
import pytest
from golden import reader
from golden.engines import Answer, Engine, OpsEngine, OracleEngine
from golden.reader import Layer, Vector

from sparse3d import _registry

FORWARD, GRADIENT = 1e-5, 1e-4

CONV = {"conv", "subm", "transpose", "inverse", "generative", "depthwise conv"}


@pytest.fixture(params=["oracle", "reference", "cpu"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Who solves the problem: the oracle, or the ops on a backend."""
    if request.param == "oracle":
        yield OracleEngine()
        return
    reason = None if request.param == "reference" else _registry.load(request.param)
    if reason is not None:
        pytest.skip(f"{request.param}: {reason}")
    with _registry.force(request.param):
        yield OpsEngine()


def _names(prefix: str, ops: set[str]) -> list[str]:
    return [n for n in reader.names(prefix) if Vector(n).meta["op"] in ops]


def _close(actual: oracle.Array | None, expected: oracle.Array, bound: float) -> None:
    assert actual is not None
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max(initial=0.0) <= bound


def _conv(
    engine: Engine, vector: Vector, layer: Layer, weight: oracle.Array, groups: int
) -> Answer:
    """Solve a convolution and compare sites, features and the gradient of the features."""
    rows = oracle.match_rows(layer.out_coords, engine.sites(layer))
    answer = engine.conv(layer, vector["in_feats"], weight, groups, vector["grad_out"][rows])
    bias = vector["bias"].reshape(-1) if "bias" in vector else 0.0
    _close(answer.features + bias, vector["out_feats"][rows], FORWARD)
    _close(answer.grad_in, vector["grad_in"], GRADIENT)
    return answer


@pytest.mark.parametrize("name", _names("spconv", CONV))
def test_spconv_layers(name: str, engine: Engine) -> None:
    vector = Vector(name)
    layer = reader.spconv_layer(vector)
    answer = _conv(engine, vector, layer, reader.spconv_weight(vector), 1)
    _close(answer.grad_weight, reader.spconv_weight(vector, "grad_weight"), GRADIENT)
    if layer.rule == reader.SUBM:
        np.testing.assert_array_equal(answer.coords, vector["in_coords"])


@pytest.mark.parametrize("name", _names("me", CONV) + _names("ts", CONV))
def test_minkowski_and_torchsparse_layers(name: str, engine: Engine) -> None:
    vector = Vector(name)
    read = reader.minkowski_layer if name.startswith("me") else reader.torchsparse_layer
    layer = read(vector)
    weight = reader.peer_weight(vector, layer)
    answer = _conv(engine, vector, layer, weight, reader.peer_groups(vector))
    expected = reader.peer_weight(vector, layer, "grad_weight")
    present = reader.tap_order(vector, layer)
    assert answer.grad_weight is not None
    _close(answer.grad_weight[:, present], expected[:, present], GRADIENT)


@pytest.mark.parametrize("name", _names("spconv", {"maxpool"}))
def test_spconv_max_pools(name: str, engine: Engine) -> None:
    vector = Vector(name)
    layer = reader.spconv_layer(vector)
    rows = oracle.match_rows(layer.out_coords, engine.sites(layer))
    grad = vector["grad_out"][rows]
    answer = engine.pool(layer, "max", vector["in_feats"], grad)
    _close(answer.features, vector["true_max"][rows], FORWARD)
    # spconv's pool starts from 0: where that wins, no input gets the gradient.
    _close(np.maximum(answer.features, 0), vector["out_feats"][rows], FORWARD)
    floored = engine.pool(layer, "max", vector["in_feats"], grad * (answer.features > 0))
    _close(floored.grad_in, vector["grad_in"], GRADIENT)


POOLS = {"MinkowskiSumPooling": "sum", "MinkowskiAvgPooling": "mean", "MinkowskiMaxPooling": "max"}


@pytest.mark.parametrize("name", _names("me", set(POOLS)))
def test_minkowski_pools(name: str, engine: Engine) -> None:
    vector = Vector(name)
    layer = reader.minkowski_layer(vector)
    rows = oracle.match_rows(layer.out_coords, engine.sites(layer))
    kind = POOLS[vector.meta["op"]]
    answer = engine.pool(layer, kind, vector["in_feats"], vector["grad_out"][rows])
    _close(answer.features, vector["out_feats"][rows], FORWARD)
    _close(answer.grad_in, vector["grad_in"], GRADIENT)


@pytest.mark.parametrize(
    ("name", "key", "kind"),
    [
        ("me_globalavg", "out_feats", "mean"),
        ("me_globalmax", "out_feats", "max"),
        ("ts_globalpool", "avg", "mean"),
        ("ts_globalpool", "max", "max"),
    ],
)
def test_global_pools(name: str, key: str, kind: str, engine: Engine) -> None:
    vector = Vector(name)
    out = engine.segment(kind, vector["in_feats"], vector["in_coords"][:, 0].astype(np.int64), 3)
    _close(out, vector[key], FORWARD)


@pytest.mark.parametrize("name", ["me_broadcast_add", "me_broadcast_mul"])
def test_broadcast(name: str, engine: Engine) -> None:
    vector = Vector(name)
    batch = vector["in_coords"][:, 0].astype(np.int64)
    rows = oracle.lookup(vector["glob_coords"][:, :1], vector["in_coords"][:, :1])
    shared = vector["glob_feats"][rows]
    x, grad = vector["in_feats"], vector["grad_out"]
    product = name.endswith("mul")
    _close(x * shared if product else x + shared, vector["out_feats"], FORWARD)
    back = engine.segment("sum", grad * x if product else grad, batch, 3)
    order = oracle.lookup(np.arange(3, dtype=np.int32)[:, None], vector["glob_coords"][:, :1])
    _close(back[order], vector["grad_glob"], GRADIENT)


@pytest.mark.parametrize("name", ["spconv_sparse_add", "me_arith_add", "me_arith_mul"])
def test_union_of_different_sites(name: str, engine: Engine) -> None:
    vector = Vector(name)
    coords = np.concatenate([vector["a_coords"], vector["b_coords"]])
    first, inverse = engine.unique(coords)
    rows = oracle.match_rows(vector["out_coords"], coords[first])
    split = len(vector["a_coords"])
    a = engine.segment("sum", vector["a_feats"], inverse[:split], len(first))
    b = engine.segment("sum", vector["b_feats"], inverse[split:], len(first))
    expected = vector["out_feats"][rows]
    if name == "me_arith_mul":  # the peer keeps a where b is absent; the right product is 0
        both = np.isin(np.arange(len(first)), inverse[split:])
        _close((a * b)[both], expected[both], FORWARD)
        assert not (a * b)[~both].any()
        return
    _close(a + b, expected, FORWARD)
    grad = vector["grad_out"][rows]
    _close(grad[inverse[:split]], vector["grad_a"], GRADIENT)
    _close(grad[inverse[split:]], vector["grad_b"], GRADIENT)


def test_interpolation(engine: Engine) -> None:
    vector = Vector("me_interpolation")
    answer = engine.interpolate(
        vector["in_coords"], vector["in_feats"], vector["query"], vector["grad_out"]
    )
    _close(answer.features, vector["out_feats"], FORWARD)
    _close(answer.grad_in, vector["grad_in"], GRADIENT)


@pytest.mark.parametrize("name", ["me_field_avg", "me_field_sum", "me_field_rand"])
def test_field_to_voxels(name: str, engine: Engine) -> None:
    vector = Vector(name)
    coords = np.floor(vector["field_coords"]).astype(np.int32)
    first, inverse = engine.unique(coords)
    rows = oracle.match_rows(vector["out_coords"], coords[first])
    expected = vector["out_feats"][rows]
    if (
        name == "me_field_rand"
    ):  # any point of the voxel will do, so look for the one that was drawn
        for voxel, features in enumerate(expected):
            members = vector["field_feats"][inverse == voxel]
            assert (np.abs(members - features).max(1) <= FORWARD).any()
        return
    kind = "mean" if name == "me_field_avg" else "sum"
    merged = engine.segment(kind, vector["field_feats"], inverse, len(first))
    _close(merged, expected, FORWARD)
    counts = np.bincount(inverse)[inverse][:, None] if kind == "mean" else 1
    _close(vector["grad_out"][rows][inverse] / counts, vector["grad_in"], GRADIENT)
    if "sliced" in vector:
        _close(merged[inverse], vector["sliced"], FORWARD)


def test_mean_of_the_points_of_a_voxel(engine: Engine) -> None:
    vector = Vector("ts_voxelize")
    ids, num = vector["idx"], len(vector["counts"])
    _close(engine.segment("mean", vector["feats"], ids, num), vector["out_feats"], FORWARD)
    back = vector["grad_out"][ids] / vector["counts"][ids][:, None]
    _close(back, vector["grad_in"], GRADIENT)


@pytest.mark.parametrize("name", ["me_sparse_quantize", "ts_sparse_quantize"])
def test_sparse_quantize(name: str, engine: Engine) -> None:
    vector = Vector(name)
    cells = oracle.quantize(vector["points"], [0.4] * 3, [0.0] * 3, "floor")
    if name.startswith("ts"):  # that peer moves the cloud to its minimum
        cells -= cells.min(0)
    coords = np.concatenate([np.zeros((len(cells), 1), np.int32), cells], axis=1)
    first, inverse = engine.unique(coords)
    expected = vector["coords"] - (vector["coords"].min(0) if name.startswith("ts") else 0)
    expected = np.concatenate([np.zeros((len(expected), 1), np.int32), expected], axis=1)
    rows = oracle.match_rows(expected, coords[first])
    np.testing.assert_array_equal(rows[inverse], vector["inverse"])
    np.testing.assert_array_equal(coords[vector["index"]], expected)


def test_pruning_keeps_the_rows_of_the_mask() -> None:
    vector = Vector("me_pruning")
    kept = np.flatnonzero(vector["mask"])
    rows = oracle.match_rows(vector["out_coords"], vector["in_coords"][kept])
    _close(vector["in_feats"][kept], vector["out_feats"][rows], FORWARD)
    back = np.zeros_like(vector["in_feats"])
    back[kept] = vector["grad_out"][rows]
    _close(back, vector["grad_in"], GRADIENT)


def test_dense() -> None:
    vector = Vector("spconv_dense")
    dense = oracle.to_dense(vector["in_feats"], vector["in_coords"], 2, (8, 8, 8))
    np.testing.assert_array_equal(dense, vector["dense_channels_last"])
    np.testing.assert_array_equal(np.moveaxis(dense, -1, 1), vector["dense"])


def test_no_recorded_file_is_left_out() -> None:
    layers = _names("spconv", CONV) + _names("me", CONV) + _names("ts", CONV)
    pools = _names("spconv", {"maxpool"}) + _names("me", set(POOLS))
    single = {
        "me_arith_add", "me_arith_mul", "me_broadcast_add", "me_broadcast_mul", "me_field_avg",
        "me_field_rand", "me_field_sum", "me_globalavg", "me_globalmax", "me_interpolation",
        "me_pruning", "me_sparse_quantize", "spconv_dense", "spconv_ptv_basic",
        "spconv_sparse_add", "ts_globalpool", "ts_sparse_quantize", "ts_voxelize",
    }  # fmt: skip
    assert set(layers) | set(pools) | single == set(reader.names(""))
