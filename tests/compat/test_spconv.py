"""The spconv stand-in: recorded layers, quirks that weights stand on, and code written for it."""

from __future__ import annotations

import copy
import importlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
from golden import reader
from golden.reader import Vector

import sparse3d.compat.spconv as spconv1
import sparse3d.compat.spconv.pytorch as spconv
from sparse3d import _registry, checkpoint
from sparse3d.compat.cumm import tensorview as tv
from sparse3d.compat.spconv import utils
from sparse3d.compat.spconv.pytorch import functional as Fsp
from sparse3d.compat.spconv.pytorch.utils import PointToVoxel

# torch tells everyone who makes a quantised tensor that they will go.
pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
FORWARD, GRADIENT = 1e-5, 1e-4


def tensor(vector: Vector, name: str) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(vector[name]))


def close(actual: torch.Tensor | None, expected: torch.Tensor, bound: float) -> None:
    assert actual is not None
    assert actual.shape == expected.shape
    assert float((actual.detach() - expected).abs().max()) <= bound


def rows(vector: Vector, coords: torch.Tensor) -> torch.Tensor:
    """For each of our rows, the peer's row at the same place."""
    return torch.from_numpy(oracle.match_rows(vector["out_coords"], coords.numpy()))


def layer_of(vector: Vector) -> spconv.conv.SparseConvolution:
    meta = vector.meta
    c_out, c_in = vector["weight"].shape[0], vector["weight"].shape[-1]
    bias = "bias" in vector
    kind = getattr(spconv, meta["cls"])
    if meta["op"] == "inverse":
        layer = kind(c_in, c_out, meta["kernel"], "down", bias=bias)
    else:
        numbers = (meta["kernel"], meta["stride"], meta["padding"], meta["dilation"])
        layer = kind(c_in, c_out, *numbers, bias=bias)
    state = {"weight": tensor(vector, "weight")}
    if bias:
        state["bias"] = tensor(vector, "bias")
    layer.load_state_dict(state)
    return layer


def input_of(vector: Vector) -> spconv.SparseConvTensor:
    """The recorded input; of an inverse layer, made by the strided layer it undoes."""
    meta = vector.meta
    batch = meta["batch"]
    if meta["op"] != "inverse":
        features = tensor(vector, "in_feats").requires_grad_()
        return spconv.SparseConvTensor(
            features, tensor(vector, "in_coords"), meta["in_shape"], batch
        )
    fine = tensor(vector, "fine_coords")
    x = spconv.SparseConvTensor(torch.zeros(len(fine), 1), fine, meta["out_shape"], batch)
    down = getattr(spconv, f"SparseConv{meta['ndim']}d")(
        1, 1, meta["kernel"], meta["stride"], meta["padding"], meta["dilation"], indice_key="down"
    )
    middle = down(x)
    order = oracle.match_rows(vector["in_coords"], middle.indices.numpy())
    return middle.replace_feature(tensor(vector, "in_feats")[order].requires_grad_())


CONV = {"conv", "subm", "transpose", "inverse"}
NAMES = [n for n in reader.names("spconv") if Vector(n).meta["op"] in CONV]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_layers(name: str, backend: str) -> None:
    vector = Vector(name)
    with _registry.force(backend):
        layer, x = layer_of(vector), input_of(vector)
        out = layer(x)
        order = rows(vector, out.indices)
        if vector.meta["op"] == "subm":
            assert torch.equal(out.indices, x.indices)
        close(out.features, tensor(vector, "out_feats")[order], FORWARD)
        out.features.backward(tensor(vector, "grad_out")[order])
        with torch.no_grad():
            close(layer(x).features, tensor(vector, "out_feats")[order], FORWARD)
    grad_in = tensor(vector, "grad_in")
    if vector.meta["op"] == "inverse":
        grad_in = grad_in[oracle.match_rows(vector["in_coords"], x.indices.numpy())]
    close(x.features.grad, grad_in, GRADIENT)
    close(layer.weight.grad, tensor(vector, "grad_weight"), GRADIENT)
    if layer.bias is not None:
        close(layer.bias.grad, tensor(vector, "grad_bias"), GRADIENT)


@pytest.mark.parametrize("name", reader.names("spconv_maxpool"))
def test_recorded_max_pools_start_from_zero(name: str) -> None:
    vector = Vector(name)
    meta = vector.meta
    x = input_of(vector)
    numbers = (meta["kernel"], meta["stride"], meta["padding"])
    out = spconv.SparseMaxPool3d(*numbers)(x)
    order = rows(vector, out.indices)
    close(out.features, tensor(vector, "out_feats")[order], FORWARD)
    out.features.backward(tensor(vector, "grad_out")[order])
    close(x.features.grad, tensor(vector, "grad_in"), GRADIENT)
    true = spconv.SparseMaxPool3d(*numbers, floor_at_zero=False)(x)
    close(true.features, tensor(vector, "true_max")[order], FORWARD)


def test_recorded_union_add() -> None:
    vector = Vector("spconv_sparse_add")
    shape = [int(n) + 1 for n in vector["out_coords"].max(0)[1:]]
    made = []
    for side in "ab":
        features = tensor(vector, f"{side}_feats").requires_grad_()
        indices = tensor(vector, f"{side}_coords")
        made.append(spconv.SparseConvTensor(features, indices, shape, 2))
    for function in (Fsp.sparse_add, Fsp.sparse_add_hash_based):
        out = function(*made)
        order = rows(vector, out.indices)
        close(out.features, tensor(vector, "out_feats")[order], FORWARD)
    out.features.backward(tensor(vector, "grad_out")[order])
    for side, x in zip("ab", made, strict=True):
        close(x.features.grad, tensor(vector, f"grad_{side}"), GRADIENT)


def test_recorded_dense() -> None:
    vector = Vector("spconv_dense")
    features = tensor(vector, "in_feats")
    shape = vector["dense"].shape
    x = spconv.SparseConvTensor(features, tensor(vector, "in_coords"), shape[2:], shape[0])
    close(x.dense(), tensor(vector, "dense"), 0)
    close(x.dense(channels_first=False), tensor(vector, "dense_channels_last"), 0)


def test_recorded_points_to_voxels() -> None:
    """The peer's `empty_mean` is a running sum over voxels; ours is each voxel's own mean."""
    vector = Vector("spconv_ptv_basic")
    meta = vector.meta
    numbers = (meta["vsize_xyz"], meta["range_xyz"], 4, meta["max_voxels"], meta["max_points"])
    made = PointToVoxel(*numbers, device=torch.device("cpu:0"))
    voxels, indices, counts, ids = made.generate_voxel_with_id(tensor(vector, "points"))
    close(voxels, tensor(vector, "voxels"), 0)
    assert torch.equal(indices, tensor(vector, "coords"))
    assert torch.equal(counts, tensor(vector, "num"))
    assert torch.equal(ids, tensor(vector, "pc_voxel_id"))
    filled, _, _ = made(tensor(vector, "points"), empty_mean=True)
    for voxel, few, count in zip(filled, voxels, counts.tolist(), strict=True):
        mean = few[:count].mean(0)
        close(voxel[count:], mean.expand(len(voxel) - count, -1), 1e-6) if count < 5 else None
    close(filled[0], tensor(vector, "voxels_empty_mean")[0], 1e-6)


def test_voxel_generators_of_both_versions() -> None:
    vector = Vector("spconv_ptv_basic")
    meta = vector.meta
    points = vector["points"]
    old = utils.VoxelGenerator(meta["vsize_xyz"], meta["range_xyz"], 5, 400)
    voxels, coords, counts = old.generate(points)
    assert (coords == vector["coords"]).all()
    assert (counts == vector["num"]).all()
    assert voxels.shape == vector["voxels"].shape
    assert old.grid_size.tolist() == [16, 16, 4]
    second = utils.VoxelGeneratorV2(meta["vsize_xyz"], meta["range_xyz"], 5, 400).generate(points)
    assert (second["voxels"] == vector["voxels"]).all()
    assert (second["voxel_point_mask"][..., 0].sum(1) == vector["num"]).all()
    new = utils.Point2VoxelCPU3d(meta["vsize_xyz"], meta["range_xyz"], 4, 400, 5)
    made = new.point_to_voxel(tv.from_numpy(points))
    assert (made[0].numpy() == vector["voxels"]).all()
    assert type(made[1].numpy()) is np.ndarray


def by_hand(points: Any, size: Any, bounds: Any, most: int, limit: int) -> dict[Any, list[int]]:
    """Rows of the points of each voxel (z, y, x), in order of first occurrence."""
    found: dict[Any, list[int]] = {}
    cells = np.floor((points[:, :3] - np.float32(bounds[:3])) / np.float32(size)).astype(int)
    shape = np.round((np.float32(bounds[3:]) - np.float32(bounds[:3])) / np.float32(size))
    for row, cell in enumerate(cells):
        key = tuple(cell[::-1].tolist())
        if (cell < 0).any() or (cell >= shape).any() or (key not in found and len(found) == limit):
            continue
        rows = found.setdefault(key, [])
        if len(rows) < most:
            rows.append(row)
    return found


SIZE, BOUNDS = [0.5, 0.5, 1.0], [0, -2, -1, 4, 2, 3]


def cloud(rows: int = 400) -> Any:
    points = np.random.default_rng(3).random((rows, 5), np.float32) * 6
    return points - np.array([1, 3, 1.5, 0, 0], np.float32)


@pytest.mark.parametrize(("full_mean", "limit"), [(False, 300), (False, 40), (True, 300)])
def test_points_to_voxel_of_version_1(full_mean: bool, limit: int) -> None:
    points = cloud()
    scratch = np.full((4, 8, 8), -1, np.int32)
    found = by_hand(points, SIZE, BOUNDS, 2, limit)
    made = utils.points_to_voxel(points, SIZE, BOUNDS, scratch, 2, limit, full_mean, False)
    number = made["voxel_num"]
    assert number == len(found)
    assert made["voxels"].shape == (limit, 2, 5)
    assert made["coordinates"][:number].tolist() == [list(key) for key in found]
    assert made["num_points_per_voxel"][:number].tolist() == [len(r) for r in found.values()]
    assert not any(made[key][number:].any() for key in made if key != "voxel_num")
    assert (made["voxel_point_mask"].sum((1, 2)) == made["num_points_per_voxel"]).all()
    for voxel, rows in zip(made["voxels"], found.values(), strict=False):
        assert (voxel[: len(rows)] == points[rows]).all()
        rest = points[rows].mean(0) if full_mean else np.zeros(5)
        np.testing.assert_allclose(voxel[len(rows) :], rest[None].repeat(2 - len(rows), 0), 1e-6)
    assert (scratch == -1).all()


@pytest.mark.parametrize(
    ("factor", "window", "most"), [(1, 3, 2.0), (2, 1, 2.0), (2, 2, 2.0), (4, 1, 3.5)]
)
def test_voxels_filtered_by_height(factor: int, window: int, most: float) -> None:
    points = cloud(60)
    found = by_hand(points, SIZE, BOUNDS, 3, 300)
    heights: dict[Any, list[float]] = {}
    for (_, y, x), rows in found.items():
        heights.setdefault((y // factor, x // factor), []).extend(points[rows, 2].tolist())
    kept = []
    for z, y, x in found:
        steps = range(-(window // 2), window - window // 2)
        around = [(y // factor + i, x // factor + j) for i in steps for j in steps]
        spans = [h for block in around for h in heights.get(block, [])]
        if 0.5 < max(spans) - min(spans) < most:
            kept.append([z, y, x])
    assert 0 < len(kept) < len(found)
    blocking: Any = factor, window, 0.5, most
    for pad in (False, True):
        made = utils.points_to_voxel(
            points, SIZE, BOUNDS, None, 3, 300, False, True, *blocking, pad_output=pad
        )
        assert made["voxel_num"] == len(kept)
        assert len(made["voxels"]) == (300 if pad else len(kept))
        assert made["coordinates"][: len(kept)].tolist() == kept
        assert not made["voxels"][len(kept) :].any()
    generator = utils.VoxelGeneratorV2(SIZE, BOUNDS, 3, 300, False, True, *blocking)
    assert generator.generate(points)["coordinates"].tolist() == kept
    with pytest.raises(ValueError, match=r"block_factor must be a divisor of \[8, 8\], got 3"):
        utils.points_to_voxel(points, SIZE, BOUNDS, block_factor=3)
    with pytest.raises(ValueError, match="block_filtering must be False with full_mean, got True"):
        utils.points_to_voxel(points, SIZE, BOUNDS, full_mean=True)


@pytest.mark.parametrize("threshold", [0.2, 0.5, 1.0])
def test_suppression_as_on_the_gpu_of_version_1(threshold: float) -> None:
    """A pixel is added to every side, and a box goes if it overlaps by more than the threshold."""
    boxes = np.random.default_rng(5).integers(0, 12, (40, 5)).astype(np.float32)
    boxes[:, 2:4] += boxes[:, :2]
    boxes[1] = boxes[0]
    kept: list[int] = []
    for row, (x1, y1, x2, y2, _) in enumerate(boxes.astype(float)):
        for x3, y3, x4, y4, _ in boxes[kept].astype(float):
            width, height = min(x2, x4) - max(x1, x3) + 1, min(y2, y4) - max(y1, y3) + 1
            shared = max(width, 0) * max(height, 0)
            areas = (x2 - x1 + 1) * (y2 - y1 + 1) + (x4 - x3 + 1) * (y4 - y3 + 1)
            if shared / (areas - shared) > threshold:
                break
        else:
            kept.append(row)
    keep = np.zeros(40, np.int32)
    number = utils.non_max_suppression(boxes, keep, threshold, 0)
    assert keep[:number].tolist() == kept
    assert utils.spconv_utils.non_max_suppression is utils.non_max_suppression


# --------------------------------------------------------------------- quirks and differences


def scene() -> spconv.SparseConvTensor:
    cells = torch.randperm(512)[:60]
    indices = torch.stack([cells // 512, cells // 64, cells // 8 % 8, cells % 8], 1).int()
    return spconv.SparseConvTensor(torch.randn(60, 4), indices, [8, 8, 8], 1)


def test_stride_of_a_submanifold_layer_is_ignored() -> None:
    x = scene()
    layer = spconv.SubMConv3d(4, 4, 3, stride=2, padding=1)
    assert layer(x).indices is x.indices


def test_tensors_keep_their_class_and_take_duplicates() -> None:
    x = scene()
    twice = spconv.SparseConvTensor(
        torch.cat([x.features, x.features]), torch.cat([x.indices, x.indices]), [8, 8, 8], 1
    )
    out = spconv.SubMConv3d(4, 4, 3)(twice)
    assert type(out) is spconv.SparseConvTensor
    assert len(out) == 120
    outside = spconv.SparseConvTensor(x.features, x.indices + 9, [8, 8, 8], 99)
    with pytest.raises(ValueError, match="indices column"):
        spconv.SubMConv3d(4, 4, 3)(outside)


def test_undoing_follows_rows_whatever_became_of_positions() -> None:
    x = scene()
    middle = spconv.SparseConv3d(4, 4, 2, 2, indice_key="d")(x)
    up = spconv.SparseInverseConv3d(4, 4, 2, "d")
    wanted = up(middle).features
    middle.indices[:, 1:] //= 2
    assert torch.equal(up(middle).features, wanted)
    middle.indices = middle.indices.flip(0)
    assert torch.equal(up(middle).features, wanted)
    fewer = middle.replace_feature(middle.features[1:])
    fewer.indices = middle.indices[1:]
    with pytest.raises(ValueError, match="used on the sites it was made for"):
        up(fewer)


def test_labels_and_masks_ride_on_sites() -> None:
    """Features of any dtype are held, densified and replaced; layers say what they take."""
    x = scene()
    labels = torch.arange(60)[:, None]
    held = spconv.SparseConvTensor(labels, x.indices, [8, 8, 8], 1)
    grid = held.dense()
    assert grid.dtype == torch.int64
    assert torch.equal(grid[0, 0][x.indices[:, 1:].long().unbind(1)], labels[:, 0])
    assert int((grid != 0).sum()) == 59
    mask = x.replace_feature(labels > 30)
    assert int(mask.dense(channels_first=False).sum()) == 29
    with pytest.raises(TypeError, match="features must be float32"):
        spconv.SubMConv3d(1, 2, 3)(held)
    with pytest.raises(ValueError, match="feature must be 2-dimensional"):
        x.replace_feature(labels[:, 0])


def test_sums_are_row_by_row() -> None:
    """Whatever became of the positions, as in spconv; of unequal rows, over the union."""
    x = scene()
    moved = x.replace_feature(torch.randn(60, 4))
    moved.indices = x.indices.flip(0)
    total = x + moved
    assert torch.equal(total.features, x.features + moved.features)
    assert total.indices is x.indices
    fewer = spconv.SparseConvTensor(x.features[:5], x.indices[:5], [8, 8, 8], 1)
    assert (x + fewer).features.shape == (60, 4)
    assert torch.equal((x + 1.0).features, x.features + 1)


@pytest.mark.parametrize("kind", ["IndiceData", "ImplicitGemmIndiceData"])
@pytest.mark.parametrize("subm", [True, False])
def test_layers_of_ones_own_leave_tables(kind: str, subm: bool) -> None:
    """A layer that keeps what `ops` gave it under a key: others read it, and undo it."""
    x = scene()
    algo = spconv.ConvAlgo.Native if kind == "IndiceData" else spconv.ConvAlgo.MaskImplicitGemm
    sizes = [3] * 3, [1 if subm else 2] * 3, [1] * 3, [1] * 3
    numbers = (x.indices, 1, [8, 8, 8], algo, *sizes, [0] * 3, subm)
    grid = [8 if subm else 4] * 3
    ksize, stride, padding, dilation = sizes
    after = (subm, algo, ksize, stride, dilation, padding)
    if kind == "IndiceData":
        out, pairs, counts = spconv.ops.get_indice_pairs(*numbers)
        made = spconv.core.IndiceData(out, x.indices, pairs, counts, [8] * 3, grid, *after)
    else:
        out, _, *tables = spconv.ops.get_indice_pairs_implicit_gemm(*numbers)
        made = spconv.core.ImplicitGemmIndiceData(out, x.indices, *tables, [8] * 3, grid, *after)
    layer = spconv.SubMConv3d if subm else spconv.SparseConv3d
    plain = layer(4, 4, 3, *([] if subm else [2, 1]), indice_key="k", bias=False, algo=algo)
    wanted = plain(x)
    left = wanted.find_indice_pair("k")
    assert type(made) is type(left) is getattr(spconv.core, kind)
    for name in ("algo", "is_subm", "ksize", "dilation", "spatial_shape", "out_spatial_shape"):
        assert getattr(made, name) == getattr(left, name), name
    for name in ("pair_fwd", "pair_bwd", "indice_pairs", "indice_pair_num", "out_indices"):
        assert torch.equal(getattr(made, name), getattr(left, name)), name
    for name in ("fwd", "bwd"):
        for part in (f"pair_mask_{name}_splits", f"mask_argsort_{name}_splits"):
            ours, theirs = getattr(made, part), getattr(left, part)
            assert len(ours) == len(theirs) == (name == "fwd" or not subm)
            assert all(map(torch.equal, ours, theirs))
    assert made.masks[0].tolist() == [0xFFFFFFFF]
    again = copy.deepcopy(made)
    assert again.algo == algo
    assert type(made.to("cpu")) is type(made)
    y = spconv.SparseConvTensor(wanted.features, out, grid, 1, indice_dict={"k": again})
    if subm:
        follower = spconv.SubMConv3d(4, 2, 3, indice_key="k")
        fresh = spconv.SparseConvTensor(wanted.features, out, grid, 1)
        torch.testing.assert_close(follower(y).features, follower(fresh).features)
    else:
        up = spconv.SparseInverseConv3d(4, 2, 3, "k")
        torch.testing.assert_close(up(y).features, up(wanted).features)
        more = spconv.SparseConvTensor(y.features, out, grid, 3, indice_dict=y.indice_dict)
        assert up(more).dense().shape == (3, 2, 8, 8, 8)  # the last samples have no rows


def test_activations_are_named_in_both_ways() -> None:
    layer = spconv.SubMConv3d(2, 2, 3)
    assert layer.act_type == tv.gemm.Activation.None_
    layer.act_type = tv.gemm.Activation.LeakyReLU
    assert layer.act_type == tv.gemm.Activation.LeakyReLU == "leaky_relu"
    assert isinstance(spconv.SparseMaxPool3d(2), spconv.pool.SparseMaxPool)


def test_code_of_version_1_assigns_features() -> None:
    x = scene()
    old = spconv1.SparseConvTensor(x.features, x.indices, [8, 8, 8], 1)
    model = spconv1.SparseSequential(
        spconv1.SubMConv3d(4, 4, 3, indice_key="s"), torch.nn.BatchNorm1d(4), torch.nn.ReLU()
    )
    out = model(old)
    out.features = out.features + old.features
    assert isinstance(out, spconv1.SparseConvTensor)
    assert torch.equal(out.features, model(old).features + old.features)
    assert spconv1.ToDense()(out).shape == (1, 4, 8, 8, 8)
    hashed = spconv1.SparseConv3d(4, 2, 3, 2, padding=1, use_hash=True)
    assert isinstance(hashed, spconv.SparseConv3d)
    assert hashed(old).features.shape[1] == 2
    assert torch.equal(pickle.loads(pickle.dumps(hashed)).weight, hashed.weight)
    with pytest.raises(ValueError, match="replace_feature"):
        x.features = x.features


def quantised() -> spconv.SparseConvTensor:
    indices = torch.tensor([[0, 1, 1, 1], [0, 2, 1, 1]]).int()
    x = spconv.SparseConvTensor(torch.tensor([[0.5], [-1.0]]), indices, [4, 4, 4], 1)
    return spconv.quantization.quantize_per_tensor(x, 0.5, 0, torch.qint8)


def test_refusals_are_clear() -> None:
    with pytest.raises(NotImplementedError, match="int8 quantisation is not implemented"):
        spconv.SubMConv3d(1, 2, 3)(quantised())
    with pytest.raises(NotImplementedError, match="call dequantize"):
        spconv.SparseMaxPool3d(2)(quantised())
    with pytest.raises(NotImplementedError, match="torch tensors as they are"):
        spconv.cppcore.TorchSpconvMatmul(None)
    with pytest.raises(NotImplementedError, match="torch tensors on a GPU"):
        tv.from_numpy(np.zeros(2)).cuda()


def test_quantised_features_are_held_and_given_back() -> None:
    x = quantised()
    assert x.is_quantized
    assert x.q_scale() == 0.5
    assert x.features.int_repr().tolist() == [[1], [-2]]
    assert x.dequantize().features.tolist() == [[0.5], [-1.0]]
    both = spconv.quantization.quantize_per_tensor(
        [torch.ones(2), x.dequantize()], [0.5, 1.0], [0, 1], torch.qint8
    )
    assert [both[0].q_scale(), both[1].features.q_zero_point()] == [0.5, 1]


def test_observers_see_sparse_tensors() -> None:
    mapping = spconv.quantization.get_default_spconv_qconfig_mapping(True)
    fake = mapping.global_qconfig.activation()
    x = quantised().dequantize()
    out = fake(x)
    assert out.indices is x.indices
    assert torch.equal(out.features, fake(x.features))
    watch = spconv.quantization.get_default_spconv_trt_ptq_qconfig("", 0).activation()
    watch(x)
    assert (watch.min_val, watch.max_val) == (-1.0, 0.5)
    kinds = spconv.quantization.get_spconv_prepare_custom_config([torch.nn.Tanh])
    assert torch.nn.Tanh in kinds.non_traceable_module_classes


def test_graphs_are_traced_over_sparse_tensors() -> None:
    """As spconv's example folds norms and activations: trace, edit layers, run."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = spconv.SparseSequential(
                spconv.SubMConv3d(2, 3, 3, indice_key="a"), torch.nn.ReLU()
            )

        def forward(self, features: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
            x = spconv.SparseConvTensor(features, indices, [4, 4, 4], 1)
            return self.net(x).features

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, (spconv.conv.SparseConvolution, torch.nn.ReLU))

    net = Net().eval()
    traced = torch.fx.GraphModule(net, Tracer().trace(net))
    for node in traced.graph.nodes:
        if node.op == "call_module" and node.target == "net.1":
            net.net[0].act_type = tv.gemm.Activation.ReLU
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    traced.recompile()
    traced = spconv.quantization.remove_conv_add_dq(spconv.quantization.transform_qdq(traced))
    indices = torch.tensor([[0, 1, 1, 1], [0, 2, 1, 1]]).int()
    features = torch.randn(2, 2)
    with torch.no_grad():
        wanted = Net.forward(net, features, indices)
        assert torch.equal(traced(features, indices), wanted)
    assert not (wanted < 0).any()
    assert net.net[0].act_type == "relu"


def test_layers_where_the_peer_refuses() -> None:
    """Without outputs, with a bias in eval mode on the CPU, and in bfloat16."""
    indices = torch.tensor([[0, 7, 1, 1], [0, 7, 3, 3]], dtype=torch.int32)
    x = spconv.SparseConvTensor(torch.randn(2, 4), indices, [8, 8, 8], 1)
    layer = spconv.SparseConv3d(4, 5, 3, 2, [0, 1, 1])
    out = layer(x)  # nothing covers z = 7
    assert (out.features.shape, out.spatial_shape) == ((0, 5), [3, 4, 4])
    out.features.sum().backward()
    assert layer.weight.grad is not None
    assert not layer.weight.grad.any()
    same = spconv.SubMConv3d(4, 5, 3).eval()
    with torch.no_grad():
        plain = same(x).features
        same.bias.zero_()
        assert not torch.equal(plain, same(x).features)
    with torch.autocast("cpu", torch.bfloat16):
        half = same(x).features
    assert half.dtype == torch.bfloat16
    half.float().sum().backward()
    assert same.weight.grad is not None
    assert same.weight.grad.dtype == torch.float32


@pytest.mark.parametrize(("word", "source"), [("RSCK", "spconv-1"), ("RSKC", "spconv-2.1")])
def test_the_variable_for_layouts_is_not_read(
    word: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page says instead loads such a file."""
    monkeypatch.setenv("SPCONV_SAVED_WEIGHT_LAYOUT", word)
    layer, made = spconv.SubMConv3d(4, 5, 3), spconv.SubMConv3d(4, 5, 3)
    places = {"R": range(1, 4), "S": [], "K": [0], "C": [4]}
    axes = [axis for letter in word for axis in places[letter]]
    file = {"weight": layer.weight.detach().permute(axes), "bias": layer.bias.detach()}
    with pytest.raises(RuntimeError, match="size mismatch"):
        made.load_state_dict(file)
    checkpoint.load(made, file, source=source)
    assert torch.equal(made.weight, layer.weight)


def test_boxes() -> None:
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2]], np.float32)
    moves = np.array([[0, 0], [1, 0], [9, 9], [0.1, 0]], np.float32)
    boxes = square + moves[:, None]
    upright = np.ones((4, 4), np.float32)
    overlap = utils.rbbox_iou(boxes, boxes[:, ::-1], upright, 0.0)  # either way round
    assert overlap.dtype == np.float32
    np.testing.assert_allclose(overlap[0], [1, 1 / 3, 0, 1.9 / 2.1], rtol=1e-6)
    np.testing.assert_allclose(utils.rbbox_intersection(boxes, boxes, upright, 0.0)[0, 1], 2)
    np.testing.assert_allclose(utils.rbbox_iou_loss(boxes, boxes[[0, 0, 0, 0]])[1], 1 / 3)
    upright[0, 1] = 0
    assert utils.rbbox_iou(boxes, boxes, upright, 0.0)[0, 1] == 0
    order = np.array([3, 0, 1, 2])
    assert utils.rotate_non_max_suppression_cpu(boxes, order, np.ones((4, 4)), 0.5) == [3, 1, 2]
    assert utils.rotate_non_max_suppression_cpu(boxes, order, np.zeros((4, 4)), 0.5) == [3, 0, 1, 2]
    flat = np.concatenate([boxes[:, 0], boxes[:, 2]], 1)
    assert utils.non_max_suppression_cpu(flat, order, 0.5) == [3, 1, 2]
    assert utils.non_max_suppression_cpu(flat, order, 1 / 3) == [3, 2]
    assert utils.non_max_suppression_cpu(flat[:0], order[:0], 0.5) == []


def test_torch_tensors_as_tensorview(monkeypatch: pytest.MonkeyPatch) -> None:
    ten = torch.arange(6).float().reshape(2, 3)
    view = spconv.cppcore.torch_tensor_to_tv(ten)
    view.numpy_view()[0, 0] = 7
    assert ten[0, 0] == 7
    assert view.numpy()[1].tolist() == [3, 4, 5]
    bits = spconv.cppcore.torch_tensor_to_tv(ten, tv.uint32, shape=[6])
    assert bits[0] == 0x40E00000
    every_other = spconv.cppcore.torch_tensor_to_tv(ten, shape=[3], stride=[2])
    assert every_other.tolist() == [7, 2, 4]
    first, second = spconv.cppcore.torch_tensors_to_tv(ten, ten.int())
    assert (first.dtype, second.dtype) == (tv.float32, tv.int32)
    with pytest.raises(ValueError, match="ten must be on the CPU, got meta"):
        spconv.cppcore.torch_tensor_to_tv(ten.to("meta"))
    memory = spconv.cppcore.TorchAllocator(torch.device("cpu"))
    made = memory.full_int("a", [2, 2], 3, tv.int32, -1)
    made.zero_()
    assert not memory.allocated["a"].any()
    assert memory.get_tensor_by_name("a").byte_pointer() == made.byte_pointer()
    assert not memory.zeros("", [3], tv.float32, 0).any()
    with monkeypatch.context() as patch:
        patch.setattr(np, "empty", lambda shape, dtype: np.full(shape, 113, dtype))
        assert memory.empty("b", [2], tv.int32, 0).tolist() == [113, 113]
    memory.free(made)
    with pytest.raises(ValueError, match="ten must be one of this allocator's"):
        memory.free(made)


def test_names_that_modules_bring_along() -> None:
    from sparse3d.compat.spconv.pytorch.conv import SparseModule, expand_nd
    from sparse3d.compat.spconv.pytorch.functional import _indice_to_scalar, indice_conv
    from sparse3d.compat.spconv.pytorch.pool import ops
    from sparse3d.compat.spconv.pytorch.quantization import backend_cfg, core, fake_q, graph

    assert spconv.conv.tv is spconv.ops.tv is tv
    assert expand_nd(3, 2) == [2, 2, 2]
    assert issubclass(spconv.SparseConv3d, SparseModule)
    assert ops is spconv.ops
    assert indice_conv is Fsp.indice_conv
    cells = torch.tensor([[1, 0, 2], [0, 3, 1]])
    assert _indice_to_scalar(cells, [2, 4, 5]).tolist() == [22, 16]
    for module in (backend_cfg, core, fake_q, graph):
        for name in module.__all__:
            if hasattr(spconv.quantization, name):
                assert getattr(module, name) is getattr(spconv.quantization, name)


def test_timers_time_nothing() -> None:
    x = quantised().dequantize()
    timer = spconv.SubMConv3d(1, 2, 3)(x)._timer
    with timer.namespace("a"), timer.record("b"):
        assert timer.get_all_pair_time() == {}
    assert timer.collect_by_name("b", {"a.b": 1.0, "a.c": 2.0}) == {"a.b": 1.0}


def test_scenes_of_the_peers_own_tests() -> None:
    from sparse3d.compat.spconv.test_utils import TestCase, generate_sparse_data, params_grid

    assert params_grid([1, 2], "ab") == [[1, "a"], [1, "b"], [2, "a"], [2, "b"]]
    data = generate_sparse_data([6, 5, 4], [20, 9], 3, data_range=(1, 2))
    indices = data["indices"]
    assert indices.shape == (29, 4)
    assert len(np.unique(indices, axis=0)) == 29
    assert (indices < [6, 5, 4, 2]).all()
    batch_first = np.ascontiguousarray(indices[:, [3, 0, 1, 2]])
    x = spconv.SparseConvTensor(
        torch.from_numpy(data["features"]), torch.from_numpy(batch_first), [6, 5, 4], 2
    )
    case = TestCase()
    case.assertAllClose(x.dense().numpy(), data["features_dense"])
    case.assertAllClose({"a": np.ones(2)}, {"a": np.ones(2) + 1e-8})
    case.assertAllEqual(np.array([1, np.nan]), np.array([1, np.nan]))
    with pytest.raises(AssertionError):
        case.assertAllEqual(np.ones(2), np.zeros(2))


def trained_norm(channels: int) -> torch.nn.BatchNorm1d:
    norm = torch.nn.BatchNorm1d(channels)
    for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        assert value is not None
        value.data.uniform_(0.5, 1.5)
    return norm.eval()


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_quantization_utils_fold_norms_and_activations(size: int, bias: bool) -> None:
    from sparse3d.compat.spconv.pytorch.quantization import fuse_mapping, intrinsic, utils

    indices = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1], [0, 3, 1, 2]], dtype=torch.int32)
    x = spconv.SparseConvTensor(torch.randn(3, 2), indices, [4, 4, 4], 1)
    layer, norm = spconv.SubMConv3d(2, 5, size, bias=bias).eval(), trained_norm(5)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    wanted = norm(layer(x).features)
    folded = utils.fuse_spconv_bn_eval(layer, norm)
    torch.testing.assert_close(folded(x).features, wanted)
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    if size > 1:  # the peer's function reads a 1 x 1 kernel as it is not stored
        statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        weight, shift = utils.fuse_spconv_bn_weights(layer.weight, layer.bias, *statistics)
        torch.testing.assert_close(weight, folded.weight)
        torch.testing.assert_close(shift, folded.bias)
    relu = torch.nn.ReLU()
    close = torch.testing.assert_close
    close(utils.fuse_spconv_act_eval(folded, relu)(x).features, wanted.relu())
    close(fuse_mapping.fuse_conv_bn_relu(False, layer, norm, relu)(x).features, wanted.relu())
    side = x.replace_feature(torch.randn(3, 5))
    added = (wanted + side.features).relu()
    close(intrinsic.SpconvBnAddReLUNd(layer, norm, relu)(x, side).features, added)
    both = fuse_mapping.fuse_conv_bn_add_relu(False, relu, (None, (norm, layer), None))
    close(both(x, side).features, added)
    kept = fuse_mapping.fuse_conv_bn_relu(True, layer, norm, relu)
    assert type(kept) is intrinsic.SpconvBnReLUNd
    assert type(fuse_mapping.fuse_conv_bn(True, layer, norm)) is intrinsic.SpconvBnNd
    with pytest.raises(TypeError, match="relu must be ReLU"):
        intrinsic.SpconvReLUNd(layer, norm)
    with pytest.raises(ValueError, match="in eval mode"):
        utils.fuse_spconv_bn_eval(layer, norm.train())
    with pytest.raises(NotImplementedError, match="act must be one of"):
        utils.fuse_spconv_act_eval(layer, torch.nn.Sigmoid())


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("intrinsic.quantized", "SparseConvReLU"),
        ("intrinsic.quantized", "SparseConvAddReLU"),
        ("intrinsic.quantized", "LinearPerChannelWeightReLU"),
        ("quantized", "SparseConv"),
        ("quantized", "LinearPerChannelWeight"),
    ],
)
def test_int8_layers_import_and_refuse(module: str, name: str) -> None:
    place = importlib.import_module(f"{spconv.quantization.__name__}.{module}")
    kind = getattr(place, name)
    assert kind.__name__ == name
    assert issubclass(kind, torch.nn.Module)
    with pytest.raises(NotImplementedError, match=f"{name} .*int8 quantisation is not implemented"):
        kind(3, 1, 1)
    with pytest.raises(NotImplementedError, match="int8 quantisation is not implemented"):
        kind.from_float(torch.nn.Linear(1, 1))


class Residual(spconv.SparseModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = spconv.SubMConv3d(width, width, 3, bias=False, indice_key="a")
        self.bn1 = spconv.SparseBatchNorm(width)
        self.relu = spconv.SparseReLU()
        self.conv2 = spconv.SubMConv3d(width, width, 3, bias=False, indice_key="a")
        self.bn2 = spconv.SparseBatchNorm(width)
        self.out = spconv.SparseReLU()

    def forward(self, x: Any) -> Any:
        y = self.relu(self.bn1(self.conv1(x)))
        return self.out(self.bn2(self.conv2(y)) + x)


class ForInt8(torch.nn.Module):
    """As spconv's int8 example builds its network: a norm or none, a sum, strides, a dense end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = spconv.SubMConv3d(4, 8, 3, bias=False, indice_key="a")
        self.bn = spconv.SparseBatchNorm(8)
        self.relu = spconv.SparseReLU()
        self.block = Residual(8)
        self.down = spconv.SparseConv3d(8, 16, 2, 2)
        self.after = spconv.SparseReLU()
        self.head = spconv.SubMConv3d(16, 3, 1)
        self.dense = spconv.ToDense()

    def forward(self, features: torch.Tensor, indices: torch.Tensor) -> Any:
        x = spconv.SparseConvTensor(features, indices, [8, 8, 8], 1)
        y = self.block(self.relu(self.bn(self.stem(x))))
        return self.dense(self.head(self.after(self.down(y))))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("trained", [True, False])
def test_int8_is_prepared_trained_and_judged_in_floats(trained: bool) -> None:
    from torch.ao.quantization import quantize_fx

    quant = spconv.quantization
    cells = torch.randperm(512)[:100]
    indices = torch.stack([cells * 0, cells // 64, cells // 8 % 8, cells % 8], 1).int()
    features, model = torch.randn(100, 4), ForInt8()
    for _ in range(3):
        model(features, indices)
    model.train(trained)
    mapping = quant.get_default_spconv_qconfig_mapping(trained)
    config = quant.get_spconv_backend_config([torch.nn.SyncBatchNorm])
    prepare: Any = quantize_fx.prepare_qat_fx if trained else quantize_fx.prepare_fx
    ready = prepare(
        model,
        mapping,
        (features, indices),
        backend_config=config,
        prepare_custom_config=quant.get_spconv_prepare_custom_config(),
    )
    kinds = [type(module).__name__ for module in ready.modules()]
    if trained:
        for kind, number in (("BnReLU", 2), ("BnAddReLU", 1), ("ReLU", 1)):
            assert kinds.count(f"SparseConv{kind}") == number, kinds
        before = ready.stem.weight.detach().clone()
        optimiser = torch.optim.SGD(ready.parameters(), 0.05)
        losses = []
        for _ in range(10):
            loss = (ready(features, indices) - 1).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss))
        assert losses[-1] < losses[0]
        assert not torch.equal(ready.stem.weight, before)
        ready.eval()
    else:
        assert (kinds.count("SpconvReLUNd"), kinds.count("SpconvAddReLUNd")) == (3, 1)
    wanted = ready(features, indices).detach()
    made = quantize_fx.convert_to_reference_fx(
        copy.deepcopy(ready), backend_config=config, qconfig_mapping=mapping
    )
    judged = quant.remove_conv_add_dq(quant.transform_qdq(made))
    assert [type(m).__name__ for m in judged.modules()].count("SpConv") == 5
    scale = float(wanted.abs().max())
    assert float((judged(features, indices) - wanted).abs().max()) < 0.05 * scale
    quant.prepare_spconv_torch_inference(True)
    with pytest.raises(NotImplementedError, match="int8 quantisation is not implemented"):
        quantize_fx.convert_fx(
            ready,
            backend_config=config,
            qconfig_mapping=mapping,
            convert_custom_config=quant.get_spconv_convert_custom_config(),
        )


def test_mappings_of_int8() -> None:
    from sparse3d.compat.spconv.pytorch.quantization import backend_cfg, core, graph, intrinsic
    from sparse3d.compat.spconv.pytorch.quantization.intrinsic import qat, quantized

    to_qat = spconv.quantization.get_spconv_fmod_to_qat_mapping()
    assert to_qat[intrinsic.SpconvBnReLUNd] is qat.SparseConvBnReLU
    static = spconv.quantization.get_spconv_qat_to_static_mapping()
    assert static[qat.SparseConvBnReLU] is quantized.SparseConvReLU
    assert static[spconv.SubMConv3d] is static[spconv.SparseInverseConv1d]
    assert backend_cfg.conv_dtype_configs[0].weight_dtype == torch.qint8
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        backend_cfg.nothing  # noqa: B018
    x = torch.quantize_per_tensor(torch.tensor([1.0, -2.0, 3.0]), 0.5, 0, torch.qint8)
    made = core.quantized_add(x, x, 0.25, 0)
    assert made.int_repr().tolist() == [8, -16, 24]
    both = core.quantized_add(quantised(), quantised(), 0.5, 0)
    assert both.dequantize().features.tolist() == [[1.0], [-2.0]]
    chain = torch.fx.Graph()
    node = chain.call_method("dequantize", (chain.placeholder("x"),))
    assert graph.is_dequantize_node(node)
    assert not graph.is_dequantize_node(node.args[0])


def test_maxima_start_from_zero_and_ties_take_all_by_every_name() -> None:
    """Layers, functions and the functions that give gradients, over windows that are full of
    equal numbers: every input that equals its output takes the whole gradient."""
    cells = torch.randperm(64)[:40]
    indices = torch.stack([cells * 0, cells // 16, cells // 4 % 4, cells % 4], 1).int()
    values = torch.randint(-2, 2, (40, 3)).float()
    layer = spconv.SparseMaxPool3d(3, 2, 1, indice_key="p")
    leaf = values.clone().requires_grad_()
    out = layer(spconv.SparseConvTensor(leaf, indices, [4, 4, 4], 1))
    grad = torch.randn(out.features.shape)
    wanted_out, wanted = torch.zeros_like(grad), torch.zeros_like(values)
    windows = []
    for place in out.indices[:, 1:].tolist():
        near = (indices[:, 1:] - torch.tensor(place) * 2 + 1).abs().amax(1).le(2)
        near &= (indices[:, 1:] - torch.tensor(place) * 2 + 1 >= 0).all(1)
        windows.append(near)
    for row, near in enumerate(windows):
        wanted_out[row] = values[near].amax(0).clamp(min=0)
        wanted += torch.where(near[:, None] & (values == wanted_out[row]), grad[row], 0)
    assert torch.equal(out.features, wanted_out)
    out.features.backward(grad)
    torch.testing.assert_close(leaf.grad, wanted)
    pairs = spconv.ops.get_indice_pairs(
        indices, 1, [4, 4, 4], spconv.ConvAlgo.Native, [3] * 3, [2] * 3, [1] * 3, [1] * 3, [0] * 3
    )
    order = torch.from_numpy(oracle.match_rows(out.indices.numpy(), pairs[0].numpy())).long()
    for call in (Fsp.indice_maxpool, Fsp.SparseMaxPoolFunction.apply, spconv.ops.indice_maxpool):
        again = values.clone().requires_grad_()
        made = call(again, pairs[1], pairs[2], len(pairs[0]))
        assert torch.equal(made[order], wanted_out)
        made[order].backward(grad)
        torch.testing.assert_close(again.grad, wanted)
    upstream = torch.empty_like(grad)
    upstream[order] = grad
    back = spconv.ops.indice_maxpool_backward(values, made, upstream, pairs[1], pairs[2])
    torch.testing.assert_close(back, wanted)


def test_voxel_generators_round_their_grids_as_their_versions_did() -> None:
    new = spconv.utils.PointToVoxel([1.0] * 3, [0.0] * 3 + [4.5, 5.5, 6.0], 3, 9, 9)
    assert list(new.grid_size) == [6, 6, 5]  # z, y, x
    cpu = utils.Point2VoxelCPU3d([1.0] * 3, [0.0] * 3 + [4.5, 5.5, 6.0], 3, 9, 9)
    assert list(cpu.grid_size) == [6, 6, 5]
    old = utils.VoxelGeneratorV2([1.0] * 3, [0.0] * 3 + [4.5, 5.5, 6.0], 9, 9)
    assert old.grid_size.tolist() == [4, 6, 6]  # x, y, z
    points = np.array([[4.2, 0, 0], [3.2, 0, 0]], np.float32)
    assert old.generate(points)["coordinates"].tolist() == [[0, 0, 3]]
    assert new(torch.from_numpy(points))[1].tolist() == [[0, 0, 4], [0, 0, 3]]


@pytest.mark.parametrize("subm", [True, False])
def test_functions_of_version_1(subm: bool) -> None:
    """As code for `import spconv` writes layers of its own: a table, a kernel, a function."""
    cells = torch.randperm(64)[:30]
    indices = torch.stack([cells * 0, cells // 16, cells // 4 % 4, cells % 4], 1).int()
    size, numbers = (3, {}) if subm else (2, {"stride": 2, "padding": 1})
    kind = spconv1.SubMConv3d if subm else spconv1.SparseConv3d
    layer = kind(4, 6, size, **numbers, bias=False, indice_key="k")
    x = spconv1.SparseConvTensor(torch.randn(30, 4), indices, [4, 4, 4], 1)
    wanted = layer(x)
    outids, pairs, counts = spconv1.ops.get_indice_pairs(
        indices, 1, [4, 4, 4], size, *numbers.values(), subm=subm, grid=None, use_hash=False
    )
    assert int(counts.sum()) == len(wanted.find_indice_pair("k").kernel_map)
    kernel = layer.weight.detach().clone().requires_grad_()
    rows = x.features.clone().requires_grad_()
    function = spconv1.functional.indice_subm_conv if subm else spconv1.functional.indice_conv
    made = function(rows, kernel, pairs, counts, outids.shape[0])
    order = torch.from_numpy(oracle.match_rows(wanted.indices.numpy(), outids.numpy())).long()
    torch.testing.assert_close(made[order], wanted.features, rtol=1e-5, atol=1e-5)
    grad = torch.randn(made.shape)
    made.backward(grad)
    back = spconv1.ops.indice_conv_backward(rows, kernel, grad, pairs, counts, False, subm)
    assert kernel.grad is not None
    assert kernel.grad.shape == kernel.shape
    torch.testing.assert_close(back, (rows.grad, kernel.grad))
    native = spconv1.ops.ConvAlgo.Native  # 1.2's sixth argument
    assert torch.equal(function(rows, kernel, pairs, counts, outids.shape[0], native), made)
    shift = torch.randn(6)
    fused = spconv1.ops.fused_indice_conv(
        rows, kernel, shift, pairs, counts, outids.shape[0], False, subm
    )
    torch.testing.assert_close(fused, made + shift)
    undone = spconv1.functional.indice_inverse_conv(
        made, torch.randn([*[size] * 3, 6, 2]), pairs, counts, 30
    )
    assert undone.shape == (30, 2)
    wanted_words = rf"filters must be \[\*kernel_size, 4, C_out\] of {size**3} taps, got"
    with pytest.raises(ValueError, match=wanted_words):
        spconv1.functional.indice_conv(rows, torch.randn([size] * 3 + [5, 5]), pairs, counts, 30)


V1_LAYERS = {
    "SubMConv3d": ((3,), {"padding": 1}),
    "SparseConv3d": ((3, 2), {"padding": 1}),
    "SparseConvTranspose3d": ((2, 2), {}),
    "pointwise": ((1,), {"padding": 1}),
}


@pytest.mark.parametrize("kind", V1_LAYERS)
def test_kernels_of_version_1_lie_as_it_stored_them(kind: str, tmp_path: Path) -> None:
    """`[*kernel_size, C_in, C_out]`: its checkpoints load by `load_state_dict`."""
    sizes, numbers = V1_LAYERS[kind]
    layer = getattr(spconv1, kind.replace("pointwise", "SubMConv3d"))(3, 5, *sizes, **numbers)
    size = sizes[0]
    assert layer.weight.shape == (size, size, size, 3, 5)
    kernel = torch.randn(size, size, size, 3, 5)
    layer.load_state_dict({"weight": kernel, "bias": torch.randn(5)})
    cells = torch.randperm(64)[:40]
    indices = torch.stack([cells * 0, cells // 16, cells // 4 % 4, cells % 4], 1).int()
    x = spconv1.SparseConvTensor(torch.randn(40, 3, requires_grad=True), indices, [4, 4, 4], 1)
    out = layer(x)
    dense = x.dense()
    if kind == "SparseConvTranspose3d":
        weight = kernel.permute(3, 4, 0, 1, 2)
        wanted = torch.nn.functional.conv_transpose3d(dense, weight, layer.bias, stride=2)
    else:
        weight = kernel.permute(4, 3, 0, 1, 2)
        steps, padding = layer.stride, size // 2
        wanted = torch.nn.functional.conv3d(dense, weight, layer.bias, steps, padding)
    rows = out.indices.long().unbind(1)
    torch.testing.assert_close(out.features, wanted.movedim(1, -1)[rows], rtol=1e-5, atol=1e-5)
    out.features.square().sum().backward()
    assert layer.weight.grad.shape == kernel.shape
    again = getattr(spconv, kind.replace("pointwise", "SubMConv3d"))
    newer = again(3, 5, *sizes, **numbers)
    torch.save(layer.state_dict(), tmp_path / "old.pth")
    report = checkpoint.load(newer, tmp_path / "old.pth", source="spconv-1")
    assert report.layout == "spconv-1"
    torch.testing.assert_close(newer.kernel(), layer.kernel())
    back = getattr(spconv1, kind.replace("pointwise", "SubMConv3d"))(3, 5, *sizes, **numbers)
    checkpoint.load(back, newer.state_dict(), source="spconv")
    torch.testing.assert_close(back.weight, layer.weight)
    with pytest.raises(ValueError, match="kernel must be of shape"):
        back.set_kernel(torch.zeros(5, 4, 4, 4, 3))


def test_keys_of_version_1_are_shared_by_all_tensors_of_a_pass() -> None:
    """Whatever its kernel is, a submanifold layer takes the pairs under its key, as networks were
    trained whose layers of unequal shapes share one; and the input knows what a layer left."""
    cells = torch.randperm(64)[:40]
    indices = torch.stack([cells * 0, cells // 16, cells // 4 % 4, cells % 4], 1).int()
    x = spconv1.SparseConvTensor(torch.randn(40, 3), indices, [4, 4, 4], 1)
    flat = spconv1.SubMConv3d(3, 3, (1, 3, 3), bias=False, indice_key="bef")
    tall = spconv1.SubMConv3d(3, 3, (3, 1, 3), bias=False, indice_key="bef")
    first = flat(x)
    out = tall(first)
    same = spconv1.SubMConv3d(3, 3, (1, 3, 3), bias=False, indice_key="bef")
    with torch.no_grad():
        same.weight.copy_(tall.weight.reshape(1, 3, 3, 3, 3))
    torch.testing.assert_close(out.features, same(first).features)
    with pytest.raises(ValueError, match="'bef' must be that of a layer with"):
        spconv1.SubMConv3d(3, 3, 3, indice_key="bef")(first)
    coarse = spconv1.SparseConv3d(3, 4, 2, 2, indice_key="d")(x)
    assert x.indice_dict is coarse.indice_dict
    assert set(x.indice_dict) == {"bef", "d"}
    other = spconv1.SparseConvTensor(coarse.features, coarse.indices, coarse.spatial_shape, 1)
    other.indice_dict = x.indice_dict
    up = spconv1.SparseInverseConv3d(4, 2, 2, indice_key="d")
    assert up.weight.shape == (2, 2, 2, 4, 2)
    assert up(other).features.shape == (40, 2)


@pytest.mark.parametrize("subm", [True, False])
def test_tuples_that_version_1_code_leaves_are_read(subm: bool) -> None:
    """A layer of one's own leaves (sites, sites, pairs, counts, grid) as 1.x's layers did."""
    cells = torch.randperm(64)[:40]
    indices = torch.stack([cells * 0, cells // 16, cells // 4 % 4, cells % 4], 1).int()
    x = spconv1.SparseConvTensor(torch.randn(40, 3), indices, [4, 4, 4], 1)
    size, numbers = (3, {"padding": 1}) if subm else (2, {"stride": 2})
    out, pairs, counts = spconv1.ops.get_indice_pairs(
        indices, 1, [4, 4, 4], size, *numbers.values(), subm=subm
    )
    kind = spconv1.SubMConv3d if subm else spconv1.SparseConv3d
    layer = kind(3, 5, size, **numbers, bias=False)
    function = spconv1.functional.indice_conv
    rows = function(x.features, layer.weight, pairs, counts, len(out))
    y = spconv1.SparseConvTensor(rows, out, [4 if subm else 2] * 3, 1)
    y.indice_dict["own"] = (out, indices, pairs, counts, [4, 4, 4])
    torch.testing.assert_close(y.dense(), layer(x).dense())
    if subm:
        after = spconv1.SubMConv3d(5, 2, 3, indice_key="own")
        fresh = spconv1.SparseConvTensor(rows, out, [4, 4, 4], 1)
        torch.testing.assert_close(after(y).features, after(fresh).features)
    else:
        up = spconv1.SparseInverseConv3d(5, 2, 2, indice_key="own", bias=False)
        wanted = spconv1.functional.indice_inverse_conv(rows, up.weight, pairs, counts, 40)
        torch.testing.assert_close(up(y).features, wanted)
        assert torch.equal(up(y).indices, indices)
    outids, *_, shape = y.indice_dict["own"]
    assert torch.equal(outids, out)
    assert list(shape) == [4, 4, 4]


def test_containers_of_version_1_write_into_their_input() -> None:
    x = spconv1.SparseConvTensor(torch.randn(2, 3), scene().indices[:2], [8, 8, 8], 1)
    rows = x.features
    head = spconv1.SparseSequential(torch.nn.ReLU(), torch.nn.Linear(3, 4))
    assert head(x) is x
    assert torch.equal(x.features, head[1](rows.relu()))
    net = spconv1.SparseSequential(torch.nn.ReLU(), spconv1.SubMConv3d(4, 2, 3), torch.nn.ReLU())
    before = x.features
    out = net(x)
    assert torch.equal(x.features, before.relu())
    torch.testing.assert_close(out.features, net[1](x).features.relu())
    newer = spconv.SparseConvTensor(rows, x.indices, [8, 8, 8], 1)
    assert spconv.SparseSequential(torch.nn.ReLU())(newer) is not newer
    assert torch.equal(newer.features, rows)


def test_what_a_layer_leaves_reads_as_version_1s_tuple() -> None:
    indices = torch.tensor([[0, 1, 1, 1], [0, 2, 1, 1]]).int()
    x = spconv1.SparseConvTensor(torch.randn(2, 3), indices, [4, 4, 4], 1)
    out = spconv1.SparseConv3d(3, 2, 2, 2, indice_key="d")(x)
    data = out.find_indice_pair("d")
    outids, before, pairs, counts, shape = data
    assert torch.equal(outids, out.indices)
    assert torch.equal(before, indices)
    assert shape == [4, 4, 4]
    assert int(counts.sum()) == 2
    assert torch.equal(data[2], pairs)
    assert data[-1] == shape


@pytest.mark.parametrize("kind", ["SubMConv3d", "SparseConv3d"])
def test_what_a_layer_leaves_has_neighbour_tables(kind: str) -> None:
    """Code that reads the tables of spconv's GPU algorithms: sums over `pair_fwd` are the layer."""
    cells = torch.randperm(64)[:30]
    indices = torch.stack([cells * 0, cells // 16, cells // 4 % 4, cells % 4], 1).int()
    x = spconv.SparseConvTensor(torch.randn(30, 4), indices, [4, 4, 4], 1)
    numbers = {} if kind == "SubMConv3d" else {"stride": 2, "padding": 1}
    layer = getattr(spconv, kind)(4, 5, 3, **numbers, bias=False, indice_key="k")
    out = layer(x)
    data = out.find_indice_pair("k")
    kernel = layer.weight.detach().reshape(5, 27, 4)
    wanted = torch.zeros(len(out.features), 5)
    for tap, rows in enumerate(data.pair_fwd.long()):
        met = (rows >= 0).nonzero()[:, 0]
        wanted[met] += x.features[rows[met]] @ kernel[:, tap].t()
    torch.testing.assert_close(out.features, wanted, rtol=1e-5, atol=1e-5)
    assert data.pair_bwd.shape == (27, 30)
    tap, row = (data.pair_bwd >= 0).nonzero(as_tuple=True)
    assert torch.equal(data.pair_fwd[tap, data.pair_bwd[tap, row].long()].long(), row)


class Halved(spconv.SubMConv3d):
    """A layer of a quantiser's kind: its own forward hands other weights to the peer's hook."""

    def forward(self, input: Any, add_input: Any = None) -> Any:
        return self._conv_forward(
            self.training, input, self.weight / 2, self.bias, add_input, name=self.name,
            sparse_unique_name=self._sparse_unique_name, act_type=self.act_type,
            act_alpha=self.act_alpha, act_beta=self.act_beta,
        )  # fmt: skip


@pytest.mark.parametrize("peer", [spconv, spconv1], ids=["2.x", "1.x"])
@pytest.mark.parametrize("assigned", [False, True])
def test_a_submanifold_key_goes_by_rows_whatever_became_of_the_positions(
    peer: Any, assigned: bool
) -> None:
    """spconv takes the pairs under the key, and the positions that they were left with."""
    before = scene()
    x = peer.SparseConvTensor(
        before.features, before.indices.clone(), before.spatial_shape, before.batch_size
    )
    layer = peer.SubMConv3d(4, 4, 3, indice_key="k")
    y = layer(x)
    rows = layer(y).features
    moved = y.indices.flip(0).contiguous()
    if assigned:
        y.indices = moved
    else:
        y.indices[:] = moved
    z = layer(y)
    torch.testing.assert_close(z.features, rows, rtol=0, atol=0)
    kept = before.indices if assigned else moved
    assert torch.equal(z.indices, kept)
    # What comes next stands on the positions that the tensor has now.
    after = peer.SparseConv3d(4, 5, 3, 2, 1, bias=False)
    fresh = peer.SparseConvTensor(z.features, kept.clone(), z.spatial_shape, z.batch_size)
    torch.testing.assert_close(after(z).dense(), after(fresh).dense())


class Watched(spconv.SparseConv3d):
    """A layer of an exporter's kind: it overrides the hook alone."""

    def _conv_forward(self, training: bool, input: Any, weight: Any, bias: Any, *a: Any, **k: Any):
        self.seen = (training, weight is self.weight, bias is self.bias, sorted(k))
        return super()._conv_forward(training, input, weight, bias, *a, **k)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("act", [None, "ReLU"])
def test_layers_that_hand_over_other_weights(size: int, act: str | None) -> None:
    x = scene()
    layer, plain = Halved(4, 5, size), spconv.SubMConv3d(4, 5, size)
    if act is not None:
        layer.act_type = plain.act_type = tv.gemm.Activation[act]
    with torch.no_grad():
        plain.weight.copy_(layer.weight / 2)
        plain.bias.copy_(layer.bias)
    out, wanted = layer(x), plain(x)
    close(out.features, wanted.features.detach(), 1e-5)
    (grad,) = torch.autograd.grad(out.features.square().sum(), layer.weight)
    (slope,) = torch.autograd.grad(wanted.features.square().sum(), plain.weight)
    close(grad, slope.detach() / 2, 1e-4)
    net = spconv.SparseSequential(layer, torch.nn.ReLU()).eval()
    with torch.no_grad():
        close(net(x).features, wanted.features.detach().relu(), 1e-5)
        close(layer(x, wanted).features, plain(x, wanted).features, 1e-5)
    with pytest.raises(NotImplementedError, match="channel_scale must be None, got a tensor"):
        layer._conv_forward(False, x, layer.weight, None, channel_scale=torch.ones(5))


def test_layers_that_override_the_hook_are_asked() -> None:
    x = scene()
    layer = Watched(4, 5, 3, 2, 1, indice_key="down")
    plain = spconv.SparseConv3d(4, 5, 3, 2, 1, indice_key="down")
    plain.load_state_dict(layer.state_dict())
    out = layer(x)
    names = ["act_alpha", "act_beta", "act_type", "name", "sparse_unique_name"]
    assert layer.seen == (True, True, True, names)
    close(out.features, plain(x).features.detach(), 1e-5)
    assert "down" in out.indice_dict
    del layer.seen
    net = spconv.SparseSequential(layer, torch.nn.BatchNorm1d(5), torch.nn.ReLU()).eval()
    with torch.no_grad():
        net(x)
    assert layer.seen[0] is False


def test_reuse_is_checked_by_the_peers_names() -> None:
    x = scene()
    layer = spconv.SubMConv3d(4, 5, 3, indice_key="same")
    y = layer(x)
    data = y.find_indice_pair("same")
    layer._check_subm_reuse_valid(y, y.spatial_shape, data)
    with pytest.raises(ValueError, match="indice_key 'same'"):
        spconv.SubMConv3d(5, 5, 5, indice_key="same")._check_subm_reuse_valid(
            y, y.spatial_shape, data
        )
    down = spconv.SparseConv3d(4, 5, 3, 2, 1, indice_key="down")(x)
    up = spconv.SparseInverseConv3d(5, 4, 3, indice_key="down")
    up._check_inverse_reuse_valid(down, down.spatial_shape, down.find_indice_pair("down"))
    with pytest.raises(ValueError, match="indice_key 'down'"):
        spconv.SparseInverseConv3d(5, 4, 2, indice_key="down")._check_inverse_reuse_valid(
            down, down.spatial_shape, down.find_indice_pair("down")
        )
