"""Recorded upstream state_dicts load into the networks, and loading says what it did."""

from __future__ import annotations

import argparse
import json
import pickle
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import sparse3d.compat.minkowski as ME
import sparse3d.compat.torchsparse as ts
import sparse3d.nn as spnn
from sparse3d import checkpoint
from sparse3d.cli import app
from sparse3d.compat.torchsparse import backbones
from sparse3d.models.minkowski_nets import MinkowskiFieldNet, MinkowskiResNet, MinkowskiUNet
from sparse3d.models.minkunet import MinkUNet, scaled_widths
from sparse3d.models.part_unet import UNetV2
from sparse3d.models.pillar_backbone import PillarBackBone8x
from sparse3d.models.spunet import SpUNet
from sparse3d.models.spvcnn import SPVCNN
from sparse3d.models.voxel_backbone import (
    SparseEncoder,
    VoxelBackBone8x,
    VoxelNeXt,
    VoxelResBackBone8x,
)
from sparse3d.train.state import State, save_state, save_weights

Config = dict[str, Any]


def mmdet3d(config: Config) -> nn.Module:
    widths = [config["base_channels"], *config["encoder_channels"], *config["decoder_channels"]]
    return MinkUNet(4, 19, widths, config["encoder_blocks"], config["decoder_blocks"])


def me_unet(config: Config) -> nn.Module:
    depth = config["cls"].removeprefix("MinkUNet")[:2]
    layers = {"14": (1,) * 8, "18": (2,) * 8}[depth]
    return MinkowskiUNet(
        config.get("in_channels", 4),
        config.get("out_channels", 8),
        config["PLANES"],
        "basic",
        layers,
        config["INIT_DIM"],
    )


MODELS: dict[str, tuple[Callable[[Config], nn.Module], str]] = {
    "me_minkunet14a": (me_unet, "minkowski"),
    "me_minkunet18a": (me_unet, "minkowski"),
    "me_resfieldnet14": (
        lambda c: MinkowskiFieldNet(3, 10, "basic", (1,) * 4, c["PLANES"], c["INIT_DIM"]),
        "minkowski",
    ),
    "me_resnet14": (
        lambda c: MinkowskiResNet(4, 10, "basic", (1,) * 4, c["PLANES"], c["INIT_DIM"]),
        "minkowski",
    ),
    "mmdet3d_minkunet_minkowski": (mmdet3d, "minkowski"),
    "mmdet3d_minkunet_spconv": (mmdet3d, "spconv"),
    "mmdet3d_minkunet_torchsparse": (mmdet3d, "torchsparse"),
    "openpcdet_pillar2d": (lambda c: PillarBackBone8x(), "spconv"),
    "openpcdet_unetv2": (lambda c: UNetV2(4), "spconv"),
    "openpcdet_voxelbackbone8x": (lambda c: VoxelBackBone8x(4), "spconv"),
    "openpcdet_voxelres8x_bias": (lambda c: VoxelResBackBone8x(4), "spconv"),
    "openpcdet_voxelres8x_nobias": (lambda c: VoxelResBackBone8x(4, use_bias=False), "spconv"),
    "openpcdet_voxelnext": (
        lambda c: VoxelNeXt(4, c["model_cfg"]["CHANNELS"], c["model_cfg"]["OUT_CHANNEL"]),
        "spconv",
    ),
    "pointcept_minkunet_me": (me_unet, "minkowski"),
    "pointcept_spunet": (
        lambda c: SpUNet(4, 19, c["base_channels"], c["channels"], c["layers"]),
        "spconv",
    ),
    "spvnas_minkunet": (lambda c: MinkUNet(4, 19, scaled_widths(c["cr"])), "torchsparse"),
    "spvnas_spvcnn": (lambda c: SPVCNN(4, 19, c["cr"]), "torchsparse"),
    "torchsparse_resnet21d": (
        lambda c: backbones.SparseResNet21D(width_multiplier=c["width_multiplier"]),
        "torchsparse",
    ),
    "torchsparse_resunet42": (
        lambda c: backbones.SparseResUNet42(width_multiplier=c["width_multiplier"]),
        "torchsparse",
    ),
}


def recorded(shared: Path) -> dict[str, Any]:
    file = shared / "contracts" / "state-dict-keys.json"
    if not file.is_file():
        pytest.skip("shared data: no recorded state_dicts")
    models: dict[str, Any] = json.loads(file.read_text())["models"]
    return models


def filled(keys: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    made = {}
    for name, shape in keys.items():
        integer = name.endswith("num_batches_tracked")
        made[name] = torch.tensor(7) if integer else torch.rand(shape) + 0.1
    return made


def test_every_recorded_state_dict_has_a_model(shared: Path) -> None:
    assert set(recorded(shared)) == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_recorded_state_dicts_load(name: str, shared: Path) -> None:
    entry = recorded(shared)[name]
    make, layout = MODELS[name]
    model, state = make(entry["config"]), filled(entry["keys"])
    report = checkpoint.load(model, {f"module.{key}": value for key, value in state.items()})
    assert report.layout == layout
    assert report.missing == report.unexpected == []
    if name == "spvnas_minkunet":
        assert all(entry.startswith("module.point_transforms.") for entry in report.ignored)
        assert report.ignored
    else:
        assert report.ignored == []
    assert report.loaded == len(state) - len(report.ignored)
    for key, value in model.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            assert bool((value >= 0.1).all()), key


def norm_keys(name: str, width: int) -> dict[str, list[int]]:
    values = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{value}": [width] for value in values} | {f"{name}.num_batches_tracked": []}


def test_seconds_state_dict_loads_by_its_names() -> None:
    """mmdetection3d's `middle_encoder` as its code names it: convs at 0, norms at 1."""
    layers = {"conv_input": (4, 16, [3, 3, 3]), "conv_out": (64, 128, [3, 1, 1])}
    widths = [16, 16, 32, 32, 32, 64, 64, 64, 64, 64, 64]
    places = [(1, 0), *((stage, i) for stage in (2, 3, 4) for i in range(3))]
    for (stage, i), before, width in zip(places, widths[:-1], widths[1:], strict=True):
        layers[f"encoder_layers.encoder_layer{stage}.{i}"] = (before, width, [3, 3, 3])
    keys: dict[str, list[int]] = {}
    for name, (before, width, size) in layers.items():
        keys[f"{name}.0.weight"] = [width, *size, before]
        keys |= norm_keys(f"{name}.1", width)
    model, state = SparseEncoder(4), filled(keys)
    report = checkpoint.load(model, {f"pts_middle_encoder.{k}": v for k, v in state.items()})
    assert report.layout == "spconv"
    assert report.loaded == len(keys) == len(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_seconds_residual_state_dict_loads_by_its_names() -> None:
    """The same of `block_type="basicblock"`, whose strided convs end a stage."""
    channels = ((16, 16, 32), (32, 32, 64), (64, 64, 128), (128, 128))
    keys = {"conv_input.0.weight": [16, 3, 3, 3, 4], "conv_out.0.weight": [128, 3, 1, 1, 128]}
    keys |= norm_keys("conv_input.1", 16) | norm_keys("conv_out.1", 128)
    before = 16
    for stage, widths in enumerate(channels, 1):
        for i, width in enumerate(widths):
            name = f"encoder_layers.encoder_layer{stage}.{i}"
            if stage < 4 and i == 2:
                keys[f"{name}.0.weight"] = [width, 3, 3, 3, before]
                keys |= norm_keys(f"{name}.1", width)
            else:
                for part in (1, 2):
                    keys[f"{name}.conv{part}.weight"] = [width, 3, 3, 3, width]
                    keys |= norm_keys(f"{name}.bn{part}", width)
            before = width
    paddings = ((0, 0, 1), (0, 0, 1), (0, 0, (0, 1, 1)), (0, 0))
    model = SparseEncoder(4, 16, 128, channels, paddings, "basicblock")
    state = filled(keys)
    report = checkpoint.load(model, state)
    assert report.renamed == report.permuted == {}
    assert report.loaded == len(keys)


def test_parts_of_larger_models_are_found_by_prefix() -> None:
    model = VoxelBackBone8x(4)
    state = {f"backbone_3d.{k}": v for k, v in VoxelBackBone8x(4).state_dict().items()}
    state |= {"dense_head.conv.weight": torch.zeros(3), "global_step": torch.zeros(1)}
    report = checkpoint.load(model, {"model_state": state, "epoch": 3})
    assert set(report.ignored) == {"dense_head.conv.weight", "global_step"}
    assert report.renamed["conv_input.0.weight"] == "backbone_3d.conv_input.0.weight"
    key = "conv4.2.0.weight"
    assert torch.equal(model.state_dict()[key], state[f"backbone_3d.{key}"])


def test_a_checkpoint_with_two_such_parts_is_refused() -> None:
    """A teacher and its student: which is meant cannot be told; a twin of other widths can."""
    model, other = VoxelBackBone8x(4), VoxelBackBone8x(4)
    state = {f"student.{k}": v for k, v in model.state_dict().items()}
    both = state | {f"teacher.{k}": v for k, v in other.state_dict().items()}
    with pytest.raises(ValueError, match=r"one part that fits the model, got \['student.', 'teach"):
        checkpoint.load(model, both)
    checkpoint.load(model, other.state_dict() | both, strict=False)  # its own names first
    assert torch.equal(model.conv_input[0].weight, other.conv_input[0].weight)
    small = {"a.0.weight": torch.randn(3, 5), "b.0.weight": torch.randn(2, 5)}
    head = nn.Sequential(nn.Linear(5, 2, bias=False))
    report = checkpoint.load(head, small, source="spconv")
    assert report.renamed == {"0.weight": "b.0.weight"}


@pytest.mark.parametrize("layout", ["spconv-1", "spconv-2.1"])
def test_older_spconv_layouts_are_told_by_shape(layout: str) -> None:
    source, model = VoxelResBackBone8x(4), VoxelResBackBone8x(4)
    state = dict(source.state_dict())
    for name, module in source.named_modules():
        if isinstance(module, spnn.SparseConvolution):
            kernel = module.kernel().detach()
            turned = kernel.permute(1, 2, 3, 4, 0) if layout == "spconv-1" else kernel.movedim(0, 3)
            state[f"{name}.weight"] = turned.contiguous()
    report = checkpoint.load(model, state)
    assert report.layout == layout
    assert "conv_input.0.weight" in report.permuted
    for key, value in source.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key


@pytest.mark.parametrize(
    ("layout", "shape"),
    [("spconv", (7, 1, 1, 1, 4)), ("spconv-2.1", (1, 1, 1, 7, 4)), ("spconv-1", (1, 1, 1, 4, 7))],
)
@pytest.mark.parametrize("kind", ["SubMConv3d", "SparseConv3d"])
def test_one_tap_kernels_mean_what_their_spconv_made_of_them(
    kind: str, layout: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """1.x, 2.0, 2.1 and 2.2 all multiply by `weight.view(in, out)`, however it is shaped."""
    feats, coords = scene()
    state = {"0.weight": torch.randn(shape)}
    wanted = feats @ state["0.weight"].view(4, 7)
    file = tmp_path / "ours.pth"
    checkpoint.convert(state, file, layout)
    for source, given in ((layout, state), ("spconv", file)):
        model = spnn.SparseSequential(getattr(spnn, kind)(4, 7, 1, bias=False))
        checkpoint.load(model, given, source)
        out = model(spnn.SparseConvTensor(feats, coords, [8] * 3, 1))
        torch.testing.assert_close(out.features, wanted)


@pytest.mark.parametrize("layout", ["spconv-2.1", "spconv-1"])
def test_one_tap_kernels_of_strided_layers_are_as_their_layout_says(layout: str) -> None:
    source, model = (spnn.SparseSequential(spnn.SparseConv3d(4, 7, 1, 2)) for _ in range(2))
    kernel = source[0].kernel().detach()
    turned = kernel.movedim(0, 3) if layout == "spconv-2.1" else kernel.movedim(0, 4)
    state = {"0.weight": turned.contiguous(), "0.bias": source[0].bias}
    checkpoint.load(model, state, layout)
    assert torch.equal(model[0].weight, source[0].weight)


def test_checkpoints_of_spconv_2_1_keep_kernels_of_many_taps_as_rskc() -> None:
    """Its implicit GEMM (32 taps at the most) has KRSC kernels, its native algorithm RSKC."""
    widths = {"base_channels": 8, "channels": (8, 16, 16, 8), "layers": (1, 1, 1, 1)}
    source, model = (SpUNet(4, 5, **widths) for _ in range(2))
    state = dict(source.state_dict())
    stem = "conv_input.0.weight"
    state[stem] = state[stem].movedim(0, 3).contiguous()
    report = checkpoint.load(model, state)
    assert report.layout == "spconv-2.1"
    assert list(report.permuted) == [stem]
    for key, value in source.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key
    checkpoint.load(model, source.state_dict())
    layers = [spnn.SubMConv3d(4, 8, 5), spnn.SubMConv3d(8, 8, 3), spnn.SubMConv3d(8, 3, 3)]
    mixed = spnn.SparseSequential(*layers)
    given = dict(mixed.state_dict())
    given["0.weight"] = given["0.weight"].movedim(0, 3)
    with pytest.raises(ValueError, match="kernels of other shapes"):  # [3, 3, 3, 3, 8] may be both
        checkpoint.load(mixed, given)


@pytest.mark.parametrize("layout", ["spconv-1", "spconv-2.1"])
def test_convert_takes_no_channels_for_taps(layout: str) -> None:
    """A file of another layout than was said, or of both that spconv 2.1 has."""
    state = VoxelBackBone8x(4).state_dict()
    words = (
        rf"conv_input.0.weight must be a kernel of at most 15 taps an axis as {layout} stores it"
    )
    with pytest.raises(ValueError, match=words):
        checkpoint.convert(state, None, layout)


def test_what_cannot_be_told_is_refused() -> None:
    model = spnn.SparseSequential(spnn.SubMConv3d(3, 3, 3, bias=False))
    with pytest.raises(ValueError, match=r"must be in one layout, got shapes that fit \['spconv'"):
        checkpoint.load(model, {"0.weight": torch.randn(3, 3, 3, 3, 3)})
    checkpoint.load(model, {"0.weight": torch.randn(3, 3, 3, 3, 3)}, source="spconv")
    even = spnn.SparseSequential(spnn.SparseConv3d(3, 4, 2, 2, bias=False))
    with pytest.raises(ValueError, match=r"fit \['minkowski', 'torchsparse'\]; say which"):
        checkpoint.load(even, {"0.kernel": torch.randn(8, 3, 4)})
    with pytest.raises(ValueError, match="source must be 'auto' or one of"):
        checkpoint.load(even, {"0.kernel": torch.randn(8, 3, 4)}, source="caffe")
    with pytest.raises(ValueError, match="kernels of other shapes"):
        checkpoint.load(even, {"0.kernel": torch.randn(8, 3, 5)})


def test_strict_names_what_is_amiss() -> None:
    model = VoxelBackBone8x(4)
    state = dict(model.state_dict())
    del state["conv1.0.0.weight"], state["conv1.0.1.bias"]
    state["extra.weight"] = torch.zeros(1)
    with pytest.raises(ValueError, match=r"2 missing: conv1.0.0.weight, conv1.0.1.bias; 1 unexp"):
        checkpoint.load(model, state)
    report = checkpoint.load(model, state, strict=False)
    assert report.unexpected == ["extra.weight"]
    text = str(report)
    assert "missing    conv1.0.1.bias" in text
    assert "unexpected extra.weight" in text
    wrong = dict(model.state_dict()) | {"conv1.0.1.bias": torch.zeros(9)}
    with pytest.raises(ValueError, match=r"conv1.0.1.bias must be of shape \[16\], got \[9\]"):
        checkpoint.load(model, wrong)


# ------------------------------------------------------------------- kernels mean the same


def scene() -> tuple[torch.Tensor, torch.Tensor]:
    cells = torch.randperm(512)[:90]
    coords = torch.stack([cells // 512, cells // 64, cells // 8 % 8, cells % 8], 1).int()
    return torch.randn(90, 4), coords


@pytest.mark.parametrize("size", [1, 2, 3, (1, 3, 3), (2, 3, 3)])
@pytest.mark.parametrize("peer", ["minkowski", "torchsparse"])
def test_kernels_of_the_stand_ins_convert(peer: str, size: Any) -> None:
    """A stand-in's layer and ours, loaded from it, give the same rows."""
    feats, coords = scene()
    sizes = [size] * 3 if isinstance(size, int) else list(size)
    if peer == "minkowski":
        theirs: Any = ME.MinkowskiConvolution(4, 5, sizes, bias=True, dimension=3)
        wanted = theirs(ME.SparseTensor(feats, coords)).F
    else:
        theirs = ts.nn.Conv3d(4, 5, tuple(sizes), bias=True)
        wanted = theirs(ts.SparseTensor(feats, coords)).feats
    ours: Any = spnn.SparseConvolution(3, 4, 5, sizes, subm=all(k % 2 for k in sizes), padding=0)
    report = checkpoint.load(ours, theirs.state_dict(), source=peer)
    assert report.missing == []
    x = spnn.SparseConvTensor(feats, coords, None, 1)
    if ours.subm:
        got = ours(x).features
    else:
        padding = [k // 2 if k % 2 else 0 for k in sizes]
        same = spnn.SparseConvolution(3, 4, 5, sizes, 1, padding, indice_key=None)
        same.load_state_dict(ours.state_dict())
        out = same(x)
        rows = {tuple(c): i for i, c in enumerate(out.indices.tolist())}
        got = out.features[[rows[tuple(c)] for c in coords.tolist()]]
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    back = type(theirs)(
        4, 5, tuple(sizes), bias=True, **({"dimension": 3} if peer == "minkowski" else {})
    )
    checkpoint.load(back, ours.state_dict(), source="spconv")
    for key, value in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[key], value)


def test_reversed_axes() -> None:
    feats, coords = scene()
    theirs = ME.MinkowskiConvolution(4, 5, 3, dimension=3)
    ours = spnn.SubMConv3d(4, 5, 3, bias=False)
    report = checkpoint.load(ours, theirs.state_dict(), source="minkowski", reverse_axes=True)
    assert "axes reversed" in report.permuted["weight"]
    x = spnn.SparseConvTensor(feats, coords[:, [0, 3, 2, 1]].contiguous(), None, 1)
    wanted = theirs(ME.SparseTensor(feats, coords)).F
    torch.testing.assert_close(ours(x).features, wanted, rtol=1e-5, atol=1e-5)


# ------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_files(tmp_path: Path, suffix: str) -> None:
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    model, twin = VoxelBackBone8x(4), VoxelBackBone8x(4)
    file = tmp_path / f"weights{suffix}"
    checkpoint.save(model, file)
    report = checkpoint.load(twin, file)
    assert report.renamed == report.permuted == {}
    for key, value in model.state_dict().items():
        assert torch.equal(twin.state_dict()[key], value)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this must not run",))


def test_nothing_in_a_file_is_executed(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "evil.pth"
    torch.save({"state_dict": {"a": torch.ones(1)}, "extra": Evil()}, file)
    assert checkpoint.read(file) == {"a": torch.ones(1)}
    assert "this must not run" not in capsys.readouterr().out
    (tmp_path / "torn.pth").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match=r"torn.pth must be a whole file of weights.*cut off"):
        checkpoint.read(tmp_path / "torn.pth")
    with pytest.raises(ValueError, match="must be a readable file"):
        checkpoint.read(tmp_path / "absent.pth")
    with pytest.raises(ValueError, match="must be tensors by name"):
        checkpoint.read({"epoch": 3})


class Buffer:
    """As training frameworks keep beside the weights; pickled by its class, state and methods."""

    def __init__(self) -> None:
        self.history, self.method = np.ones(3), Buffer.mean

    def mean(self) -> float:
        return float(self.history.mean())

    def __setstate__(self, state: Any) -> None:
        raise AssertionError("this must not run")


def test_objects_beside_the_weights_are_left_out(tmp_path: Path) -> None:
    model = SideBySide()
    state = filled_state(model)
    beside = {"best": np.float64(0.7), "args": argparse.Namespace(path=Path("a")), "epoch": 3}
    logs = {"loss": Buffer(), "norms": [np.float32(1), np.arange(3)]}
    file = tmp_path / "training.pth"
    torch.save({"state_dict": state, **beside, "message_hub": logs, "last": state}, file)
    allowed = set(torch.serialization.get_safe_globals())
    report = checkpoint.load(model, file)
    assert report.loaded == len(state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert set(torch.serialization.get_safe_globals()) == allowed
    torch.save({"state_dict": logs, **beside}, file)
    with pytest.raises(ValueError, match="must be tensors by name"):
        checkpoint.read(file)


def test_files_with_objects_are_read_side_by_side(tmp_path: Path) -> None:
    """What torch is told to let pass holds for the process: one read must not end another's."""
    file = tmp_path / "a.pth"
    torch.save({"state_dict": {"w": torch.ones(3)}, "best": np.float64(0.7)}, file)
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda _: checkpoint.read(file), range(200)))
    assert all(torch.equal(found["w"], torch.ones(3)) for found in read)


def test_convert_with_and_without_a_model(tmp_path: Path, shared: Path) -> None:
    entry = recorded(shared)["spvnas_minkunet"]
    state = filled(entry["keys"])
    torch.save({"model": state}, tmp_path / "in.pth")
    report = checkpoint.convert(tmp_path / "in.pth", tmp_path / "out.pth")
    assert report.layout == "torchsparse"
    model, twin = (MinkUNet(4, 19, scaled_widths(0.1)) for _ in range(2))
    loaded = checkpoint.load(model, tmp_path / "out.pth")
    assert loaded.layout == "spconv"
    assert loaded.permuted == {}
    checkpoint.load(twin, state)
    for key, value in model.state_dict().items():
        assert torch.equal(twin.state_dict()[key], value), key
    checkpoint.convert(state, tmp_path / "again.pth", model=MinkUNet(4, 19, scaled_widths(0.1)))
    again = checkpoint.read(tmp_path / "again.pth")
    assert torch.equal(again["up4.0.net.0.weight"], model.state_dict()["up4.0.net.0.weight"])
    entry = recorded(shared)["mmdet3d_minkunet_minkowski"]
    report = checkpoint.convert(filled(entry["keys"]), tmp_path / "mm.pth")
    assert report.renamed["stem.3.weight"] == "backbone.conv_input.1.net.0.kernel"
    checkpoint.load(mmdet3d(entry["config"]), tmp_path / "mm.pth")
    flat = {"a.kernel": torch.randn(9, 2, 3), "b.bn.weight": torch.ones(3)}
    with pytest.raises(ValueError, match="a cube's kernel where no model is given, got 9 taps"):
        checkpoint.convert(flat)


# ------------------------------------------------------------- names: own first, then stripped


class Encoder(nn.Module):
    """A linear layer and a BatchNorm side by side: both names lose a part when stripped."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.bn = nn.BatchNorm1d(4)


class SideBySide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = spnn.SubMConv3d(4, 8, 3)
        self.pfn = Encoder()
        self.bn = nn.BatchNorm1d(8)


class TorchsparseBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = ts.nn.Conv3d(4, 4, 2, 2)
        self.bn = ts.nn.BatchNorm(4)


class MinkowskiHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = ME.MinkowskiConvolution(4, 4, kernel_size=2, stride=2, dimension=3)
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU())


class MinkowskiCross(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        cross = ME.KernelGenerator(3, region_type=ME.RegionType.HYPER_CROSS, dimension=3)
        self.conv = ME.MinkowskiConvolution(4, 8, kernel_generator=cross, dimension=3)
        self.down = ME.MinkowskiConvolution(8, 8, kernel_size=2, stride=2, dimension=3)


def filled_state(model: nn.Module) -> dict[str, torch.Tensor]:
    return filled({name: list(value.shape) for name, value in model.state_dict().items()})


@pytest.mark.parametrize("make", [SideBySide, TorchsparseBlock, MinkowskiHead, MinkowskiCross])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_models_own_state_loads_as_it_is(make: Callable[[], nn.Module], prefix: str) -> None:
    model = nn.Sequential(make())
    state = filled_state(model)
    report = checkpoint.load(model, {prefix + name: value for name, value in state.items()})
    assert report.permuted == {}
    assert report.loaded == len(state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_wrapped_names_go_both_ways() -> None:
    """Where the exact name is absent, `.bn.` and `.linear.` may be theirs or ours."""
    ours, theirs = nn.Sequential(Encoder()), nn.Sequential(Encoder())
    state = {
        "0.linear.linear.weight": torch.rand(4, 4),
        "0.linear.linear.bias": torch.rand(4),
    } | {f"0.bn.bn.{key}": value for key, value in filled_state(theirs[0].bn).items()}
    report = checkpoint.load(ours, state, source="minkowski")
    assert report.renamed["0.linear.weight"] == "0.linear.linear.weight"
    for name, value in ours.state_dict().items():
        part, key = name.split(".")[1:]
        assert torch.equal(value, state[f"0.{part}.{part}.{key}"]), name
    wrapped = nn.Sequential(ME.MinkowskiBatchNorm(4))
    plain = {f"0.{key}": value for key, value in filled_state(nn.BatchNorm1d(4)).items()}
    report = checkpoint.load(wrapped, plain)
    assert report.renamed["0.bn.weight"] == "0.weight"


def test_names_that_fit_twice_are_left_alone() -> None:
    model = nn.Sequential(Encoder())
    with pytest.raises(ValueError, match=r"missing: 0.linear.weight"):
        checkpoint.load(model, {"0.weight": torch.rand(4), "0.bias": torch.rand(4)}, "spconv")


def test_convert_strips_wrappers_of_minkowski_alone(tmp_path: Path) -> None:
    state = SideBySide().state_dict()
    report = checkpoint.convert(state, tmp_path / "out.pth", "spconv")
    assert report.renamed == {}
    written = checkpoint.read(tmp_path / "out.pth")
    assert list(written) == list(state)
    assert all(torch.equal(written[name], value) for name, value in state.items())
    peer = {
        "a.kernel": torch.rand(27, 2, 3),
        "norm.bn.weight": torch.rand(3),
        "b.conv.kernel": torch.rand(27, 2, 3),
        "b.bn.weight": torch.rand(3),
    }
    report = checkpoint.convert(peer, tmp_path / "me.pth", "minkowski")
    assert set(checkpoint.read(tmp_path / "me.pth")) == {
        "a.weight", "norm.weight", "b.conv.weight", "b.bn.weight",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"a.weight must be the name of one entry, got 2"):
        checkpoint.convert(peer | {"a.weight": torch.rand(3)}, source="minkowski")


def test_layouts_are_told_by_proof_alone() -> None:
    even = torch.rand(8, 4, 4)
    norm = {"weight": torch.rand(4), "running_mean": torch.rand(4)}
    side = {"b.conv.kernel": even} | {f"b.bn.{key}": value for key, value in norm.items()}
    wrapped = {"b.conv.kernel": even} | {f"b.norm.bn.{key}": value for key, value in norm.items()}
    alone = {"conv.kernel": even} | {f"b.bn.{key}": value for key, value in norm.items()}
    linear = {"conv.kernel": even, "head.0.weight": torch.rand(4, 4)}
    listed = {"b.0.kernel": even} | {f"b.1.{key}": value for key, value in norm.items()}
    for ambiguous in (side, linear, wrapped, alone):
        with pytest.raises(ValueError, match=r"fit \['minkowski', 'torchsparse'\]; say which"):
            checkpoint.detect(ambiguous)
        assert checkpoint.detect(ambiguous | {"a.bias": torch.rand(1, 4)}) == "minkowski"
    assert checkpoint.detect(listed) == "torchsparse"
    named = {"module.conv1p1s2.kernel": even}
    named |= {f"module.bn1.bn.{key}": value for key, value in norm.items()}
    assert checkpoint.detect(named) == "minkowski"


class LoneNorm(nn.Module):
    """torchsparse's norm in a module of its own: what MinkowskiEngine's looks like."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = ts.nn.BatchNorm(4)


def test_a_lone_norm_is_no_proof_where_a_model_has_other_names() -> None:
    theirs = nn.ModuleDict({"conv": ts.nn.Conv3d(4, 4, 2, 2), "norm": LoneNorm()})
    ours = nn.ModuleDict(
        {"conv": spnn.SparseConv3d(4, 4, 2, 2, bias=False), "norm": spnn.SparseBatchNorm(4)}
    )
    state = filled({name: list(value.shape) for name, value in theirs.state_dict().items()})
    with pytest.raises(ValueError, match=r"source='minkowski' .* or source='torchsparse'"):
        checkpoint.load(ours, state)
    checkpoint.load(ours, state, source="torchsparse")
    checkpoint.load(theirs, ours.state_dict(), source="spconv")
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, state[name]), name


@pytest.mark.parametrize("width", [8, 16])
def test_a_matrix_that_may_be_channelwise_is_refused(width: int) -> None:
    state = {
        "a.kernel": torch.rand(8, 4, width),
        "a.bias": torch.rand(1, width),
        "b.kernel": torch.rand(8, width),
    }
    with pytest.raises(ValueError, match=r"b.kernel must be a 1 x 1 kernel, got shape \[8, "):
        checkpoint.convert(state)
    state["b.kernel"] = torch.rand(width + 1, width)
    assert set(checkpoint.convert(state).permuted) == {"a.weight", "b.weight"}


def test_convert_leaves_a_sinusoidal_layer_alone(tmp_path: Path) -> None:
    source = MinkowskiFieldNet(3, 5, "basic", (1,) * 4, (8,) * 4, 8)
    state = dict(source.state_dict())
    theirs = {"conv.kernel": torch.rand(27, 4, 5), "conv.bias": torch.rand(1, 5)}
    theirs |= {k: v for k, v in state.items() if k.startswith("field_network.0.")}
    report = checkpoint.convert(theirs, tmp_path / "out.pth", "minkowski")
    assert set(report.permuted) == {"conv.weight"}
    written = checkpoint.read(tmp_path / "out.pth")
    assert written["conv.bias"].shape == (5,)
    for part in ("weight", "bias", "coef"):
        theirs_name = "kernel" if part == "weight" else part
        assert torch.equal(
            written[f"field_network.0.{part}"], state[f"field_network.0.{theirs_name}"]
        )
    assert checkpoint.convert(source.state_dict(), source="spconv").permuted == {}


def test_crosses_cannot_be_turned() -> None:
    model = MinkowskiCross()
    with pytest.raises(ValueError, match=r"reverse_axes must be False for conv.kernel"):
        checkpoint.load(model, model.state_dict(), reverse_axes=True)


# ----------------------------------------------------------- convert, without a model


def test_convert_leaves_dense_kernels_of_images_alone(tmp_path: Path) -> None:
    dense = torch.rand(64, 32, 3, 3)
    state = {"backbone.0.weight": torch.rand(3, 3, 3, 4, 16), "head.1.weight": dense}
    report = checkpoint.convert(state, tmp_path / "out.pth", "spconv-1")
    assert list(report.permuted) == ["backbone.0.weight"]
    assert torch.equal(checkpoint.read(tmp_path / "out.pth")["head.1.weight"], dense)
    with pytest.raises(ValueError, match=r"head.1.weight must be a kernel of 3 axes"):
        checkpoint.convert({"head.1.weight": dense}, source="spconv-1")


def test_convert_refuses_what_may_be_channelwise() -> None:
    state = {"k.kernel": torch.rand(27, 2, 16), "c.kernel": torch.rand(27, 16)}
    with pytest.raises(ValueError, match=r"c.kernel must be a 1 x 1 kernel, got shape \[27, 16\]"):
        checkpoint.convert(state, source="minkowski")
    state["c.kernel"] = torch.rand(32, 16)
    assert "c.weight" in checkpoint.convert(state, source="minkowski").permuted


def test_safetensors_of_shared_tensors(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    layer = nn.Linear(2, 3)
    checkpoint.save(nn.ModuleDict({"a": layer, "b": layer}), tmp_path / "tied.safetensors")
    read = checkpoint.read(tmp_path / "tied.safetensors")
    assert set(read) == {"a.weight", "a.bias", "b.weight", "b.bias"}
    assert torch.equal(read["a.weight"], layer.weight)
    assert torch.equal(read["b.weight"], layer.weight)


def test_the_command_line_names_its_own_flag(tmp_path: Path) -> None:
    torch.save({"0.kernel": torch.randn(8, 3, 4)}, tmp_path / "in.pth")
    args = ["convert", str(tmp_path / "in.pth"), str(tmp_path / "out.pth")]
    asked = CliRunner().invoke(app, args)
    assert asked.exit_code == 2
    words = "--layout minkowski (MinkowskiEngine) or --layout torchsparse (torchsparse)"
    assert f"say which library wrote it: {words}" in asked.stderr
    wrong = CliRunner().invoke(app, [*args, "--layout", "caffe"])
    assert wrong.stderr.startswith("error: --layout must be 'auto' or one of")


@pytest.mark.parametrize("marked", [True, False])
def test_what_training_wrote_is_known_as_ours(tmp_path: Path, marked: bool) -> None:
    """Also where shapes fit all of spconv's layouts; files before the mark by their entries."""
    state = {"0.weight": torch.rand(3, 3, 3, 3, 3)}
    with pytest.raises(ValueError, match="in one layout"):
        checkpoint.convert(state)
    save_weights(tmp_path / "best.pt", state, config="demo", step=4, miou=0.5)
    if not marked:
        table = torch.load(tmp_path / "best.pt", weights_only=True)
        assert table.pop("library") == "sparse3d"
        torch.save(table, tmp_path / "best.pt")
    last = State({"a": 1}, 4, state, state, {}, {}, None)
    save_state(tmp_path / "last.pt", last)
    model = spnn.SparseSequential(spnn.SubMConv3d(3, 3, 3, bias=False))
    for name in ("best.pt", "last.pt"):
        args = ["convert", str(tmp_path / name), str(tmp_path / "out.pth")]
        done = CliRunner().invoke(app, args)
        assert done.exit_code == 0, done.stderr
        assert "1 entries loaded, kernels as spconv stores them" in done.stdout
        assert torch.equal(checkpoint.read(tmp_path / "out.pth")["0.weight"], state["0.weight"])
        assert checkpoint.load(model, tmp_path / name).layout == "spconv"


def test_layouts_of_spconv_are_told_without_a_model() -> None:
    """Taps make a cube; a norm or bias after the kernel counts its outputs."""
    model = VoxelResBackBone8x(4)
    state = dict(model.state_dict())
    assert checkpoint.detect(state) == "spconv"
    for layout in ("spconv-2.1", "spconv-1"):
        older = dict(state)
        for name, kernel in state.items():
            if kernel.ndim == 5:
                turned = kernel.movedim(0, 3) if layout == "spconv-2.1" else kernel.movedim(0, 4)
                older[name] = turned.contiguous()
        assert checkpoint.detect(older) == layout
    kernel = {"conv.weight": torch.rand(3, 3, 3, 16, 32)}
    words = (
        "got shapes that fit ['spconv-2.1', 'spconv-1']; say which library wrote it: "
        "source='spconv-2.1' (spconv 2.0 and 2.1) or source='spconv-1' (spconv 1.x)"
    )
    with pytest.raises(ValueError, match=re.escape(words)):
        checkpoint.detect(kernel)
    assert checkpoint.detect(kernel | {"conv.bias": torch.rand(16)}) == "spconv-2.1"
    assert checkpoint.detect(kernel | {"conv.bias": torch.rand(32)}) == "spconv-1"
    with pytest.raises(ValueError, match=r"source='spconv' \(spconv 2.2 and later.*usual today\)"):
        checkpoint.detect({"conv.weight": torch.rand(3, 3, 3, 3, 3)})


@pytest.mark.parametrize("suffix", [".pth", ".safetensors", ".legacy.pth"])
def test_empty_and_cut_files_are_told_apart(tmp_path: Path, suffix: str) -> None:
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    file = tmp_path / f"weights{suffix}"
    state = {"a": torch.rand(1000)}
    if suffix == ".legacy.pth":
        torch.save(state, file, _use_new_zipfile_serialization=False)
    else:
        checkpoint.save(state, file)
    whole = file.read_bytes()
    for kept in (4, 300, len(whole) // 2, len(whole) - 30):
        file.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match=r"that is cut off, or no checkpoint; copy it again"):
            checkpoint.read(file)
    file.write_bytes(b"")
    with pytest.raises(ValueError, match=r"got an empty one \(0 bytes\); copy it again"):
        checkpoint.read(file)
    file.write_bytes(b"what is this, no weights")
    with pytest.raises(ValueError, match=r"got another kind of file"):
        checkpoint.read(file)


def test_a_plain_pickle_opens_without_a_word(tmp_path: Path, recwarn: Any) -> None:
    file = tmp_path / "plain.pt"
    file.write_bytes(pickle.dumps({"epoch": 1}, protocol=4))
    with pytest.raises(ValueError, match="must be"):
        checkpoint.read(file)
    assert list(recwarn) == []
