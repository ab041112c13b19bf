"""Exported feature paths: the same numbers as the model, for scenes that the export never saw."""

import importlib.util
from collections import Counter

import pytest
import torch
from tolerance import FORWARD, assert_close
from torch import nn

import sparse3d.nn as spnn
from sparse3d import SparseConvTensor, export
from sparse3d.export import export_onnx, export_program, feature_inputs
from sparse3d.models.minkunet import MinkUNet

PLAIN = {
    "Add", "Cast", "CastLike", "Concat", "Constant", "Expand", "Gather", "Gemm", "Identity",
    "LeakyRelu", "MatMul", "Mul", "Neg", "Reciprocal", "Relu", "Reshape", "ScatterND", "Shape",
    "Sigmoid", "Slice", "Sqrt", "Squeeze", "Transpose", "Unsqueeze", "Where",
    "Max", "Min", "Clip", "Div",
}  # fmt: skip
NARROW = [8, 8, 8, 12, 16, 16, 12, 8, 8]
ONCE = (1, 1, 1, 1)

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="the onnx extra is not installed",
)
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:copyreg")


def scene(rows, seed, ndim=3, side=20, channels=4, batch=1):
    """Distinct random sites of `batch` samples, in no order of their own."""
    generator = torch.Generator().manual_seed(seed)
    cell = torch.randperm(batch * side**ndim, generator=generator)[:rows]
    columns = []
    for _ in range(ndim):
        columns.insert(0, cell % side)
        cell = cell // side
    indices = torch.stack([cell, *columns], 1).int()
    features = torch.randn(rows, channels, generator=generator)
    return SparseConvTensor(features, indices, [side] * ndim, batch)


def settled(model):
    """In eval, with statistics that are not the initial ones."""
    generator = torch.Generator().manual_seed(3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_(0, 0.2, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
    return model.eval()


def unet():
    """Every kind of layer that has a plain form: keys, inverse, groups, pools, activations."""
    return spnn.SparseSequential(
        spnn.SubMConv3d(4, 8, 3, bias=False, indice_key="fine"), nn.BatchNorm1d(8), nn.ReLU(),
        spnn.SubMConv3d(8, 8, 3, groups=2, indice_key="fine"), nn.LeakyReLU(0.1),
        spnn.SubMConv3d(8, 8, 3, groups=8, dilation=2), nn.Sigmoid(),
        spnn.SparseConv3d(8, 12, 2, 2, indice_key="down", rule="floor"), nn.BatchNorm1d(12),
        spnn.SubMConv3d(12, 16, 1), nn.ReLU(),
        spnn.SparseInverseConv3d(16, 8, 2, "down"), nn.BatchNorm1d(8), nn.ReLU(),
        spnn.SparseMaxPool3d(3, 2, 1), spnn.SparseAvgPool3d(2, 2),
        spnn.SparseConvTranspose3d(8, 6, 2, 2),
    )  # fmt: skip


class Flat(nn.Module):
    """Two axes, and a tuple of a tensor and a sparse tensor out."""

    def __init__(self):
        super().__init__()
        self.conv = spnn.SparseConv2d(4, 6, 3, 2, 1)
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        y = self.conv(x)
        return self.head(y.features), y


def run(model, x):
    with torch.no_grad():
        out = model(x)
    return out.features if isinstance(out, SparseConvTensor) else out


def session(path):
    import onnxruntime

    made = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def call(inputs):
        return made.run(None, {name: value.numpy() for name, value in inputs.items()})

    return call


def test_one_program_serves_scenes_of_other_sizes_grids_and_batches():
    model = settled(unet())
    program = export_program(model, scene(900, 0)).module()
    for x in (scene(1500, 1), scene(60, 2), scene(700, 3, side=11), scene(999, 4, batch=3)):
        assert torch.equal(program(feature_inputs(model, x)), run(model, x))


def test_a_training_model_is_exported_as_it_infers():
    model = settled(unet())
    x = scene(300, 1)
    expected = run(model, x)
    model.train()
    program = export_program(model, x).module()
    assert model.training
    assert torch.equal(program(feature_inputs(model, x)), expected)
    assert not any(bool(m.num_batches_tracked) for m in model if isinstance(m, nn.BatchNorm1d))


def test_what_the_model_returns_keeps_its_form():
    model = Flat().eval()
    x = scene(80, 1, ndim=2, side=30)
    logits, rows = export_program(model, scene(50, 0, ndim=2)).module()(feature_inputs(model, x))
    with torch.no_grad():
        expected, sparse = model(x)
    assert torch.equal(logits, expected)
    assert torch.equal(rows, sparse.features)


def test_maps_that_other_models_left_on_the_scene_do_not_count():
    model = settled(unet())
    x = scene(300, 1)
    run(spnn.SubMConv3d(4, 4, 5), x)
    assert list(feature_inputs(model, x)) == list(feature_inputs(model, scene(200, 2)))


@needs_onnx
def test_onnx_of_every_layer_kind_is_plain_and_gives_our_numbers(tmp_path):
    import onnx

    model, path = settled(unet()), tmp_path / "net.onnx"
    names = export_onnx(model, scene(600, 0), path)
    graph = onnx.load(path)
    onnx.checker.check_model(graph, full_check=True)
    kinds = Counter(node.op_type for node in graph.graph.node)
    assert set(kinds) <= PLAIN
    assert {node.domain for node in graph.graph.node} == {""}
    assert not graph.functions
    assert min(kinds[kind] for kind in ("Gather", "MatMul", "ScatterND")) >= 8
    call = session(path)
    for x in (scene(900, 1), scene(60, 2), scene(700, 3, side=11), scene(500, 4, batch=3)):
        inputs = feature_inputs(model, x)
        assert list(inputs) == names
        assert_close(torch.from_numpy(call(inputs)[0]), run(model, x), torch.float32, FORWARD)


@needs_onnx
def test_onnx_of_a_whole_minkunet_gives_our_logits(tmp_path):
    model, path = (
        settled(MinkUNet(widths=NARROW, encoder_blocks=ONCE, decoder_blocks=ONCE)),
        tmp_path / "net.onnx",
    )
    export_onnx(model, scene(1500, 0, side=40), path)
    x = scene(2500, 1, side=48)
    (out,) = session(path)(feature_inputs(model, x))
    assert_close(torch.from_numpy(out), run(model, x), torch.float32, FORWARD)


@needs_onnx
def test_onnx_in_float64(tmp_path):
    model, path = Flat().double().eval(), tmp_path / "net.onnx"
    x = scene(80, 1, ndim=2).double()
    export_onnx(model, x, path)
    out, _ = session(path)(feature_inputs(model, x))
    with torch.no_grad():
        assert_close(torch.from_numpy(out), model(x)[0], torch.float64, FORWARD)


@needs_onnx
def test_max_pools_keep_negative_maxima_and_leave_unreached_rows_zero(tmp_path):
    model, path = spnn.SparseMaxPool3d(2, 2), tmp_path / "net.onnx"
    x = scene(300, 0)
    x = x.replace_feature(-x.features.abs() - 1)
    export_onnx(model, x, path)
    (out,) = session(path)(feature_inputs(model, x))
    assert out.max() < 0
    assert torch.equal(torch.from_numpy(out), run(model, x))


def test_a_scene_with_a_level_of_one_site_is_no_example():
    with pytest.raises(ValueError, match=r"x: sites1 must be of two rows or more.*got 1; export"):
        export_program(spnn.SparseConv3d(4, 4, 2, 2), scene(8, 0, side=2))


def test_only_sparse_tensors_are_scenes():
    with pytest.raises(TypeError, match="x must be a SparseConvTensor, got Tensor"):
        export_program(unet(), torch.zeros(3, 4))


@needs_onnx
def test_errors_of_export_onnx_name_the_way_out(tmp_path):
    model, x = settled(unet()), scene(300, 0)
    with pytest.raises(ValueError, match=r"path must be in a folder that exists.*make the folder"):
        export_onnx(model, x, tmp_path / "absent/net.onnx")
    with pytest.raises(TypeError, match=r"float32 or float64 for ONNX, got torch.float16; export"):
        export_onnx(model, x.half(), tmp_path / "net.onnx")
    looks_up = settled(MinkUNet(widths=NARROW, head="v2"))
    with pytest.raises(ValueError, match=r"got the operator \w+; export the part before it"):
        export_onnx(looks_up, scene(1500, 0, side=40), tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_without_the_extra_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("sparse3d.export._onnx.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'sparse3d-torch\[onnx\]'"):
        export_onnx(unet(), scene(300, 0), tmp_path / "net.onnx")


@needs_onnx
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "disk full")))
    with pytest.raises(OSError, match="disk full"):
        export_onnx(Flat(), scene(50, 0, ndim=2), path)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]


def test_public_names():
    assert set(export.__all__) == {"export_onnx", "export_program", "feature_inputs"}
