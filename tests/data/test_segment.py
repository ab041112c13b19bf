"""Recipes, input channels, the network around a scan, and the scores of the shipped weights."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sparse3d import SparseConvTensor
from sparse3d.data import ScanError, Sensor, read_scan, simulate
from sparse3d.data.coarse import COARSE_NAMES, coarse_scores, to_coarse
from sparse3d.data.config import load_config
from sparse3d.data.evaluate import FIRST_TRAINING_SEED, RawConfusion, held_out
from sparse3d.data.files import write_scan
from sparse3d.data.inputs import point_features, to_sparse
from sparse3d.data.metrics import Confusion
from sparse3d.data.segment import (
    Segmenter,
    Stages,
    build,
    choose_device,
    load_weights,
    turned,
    write_results,
)
from sparse3d.data.semantic_kitti import RAW_NAMES
from sparse3d.data.views import View

SMALL = simulate(11, Sensor(beams=32, azimuths=700))


@pytest.fixture(scope="module")
def demo() -> Segmenter:
    return Segmenter.load(load_config("demo"), None, torch.device("cpu"))


def recipe(folder: Path, text: str) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(text)
    return path


GOOD = """
model: {in_channels: 4, num_classes: 19, widths: [4, 4, 4, 4, 4, 4, 4, 4, 4]}
input: {voxel_size: 0.1, rounding: round, representative: first, features: [x, y, z, remission]}
"""


def test_recipes_are_read(tmp_path: Path) -> None:
    config = load_config(recipe(tmp_path, GOOD))
    assert config.features == ("x", "y", "z", "remission")
    assert config.classes[0] == 10
    assert len(config.classes) == 19
    assert config.weights_path() is None
    with pytest.raises(ValueError, match="checkpoint must be given"):
        Segmenter.load(config, None, torch.device("cpu"))


def test_every_recipe_in_the_package_loads() -> None:
    folder = Path(__file__).parents[2] / "configs"
    names = [path.stem for path in folder.glob("*.yaml") if not path.stem.startswith("train_")]
    assert "demo" in names
    for name in names:
        config = load_config(name)
        assert len(config.classes) == config.model["num_classes"], name
        assert len(config.features) == config.model["in_channels"], name


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("voxel_size: 0.1", "voxel_size: fine", "voxel_size must be a number"),
        ("voxel_size: 0.1", "voxel_size: 5000", "metres above 0 and below 100, got 5000"),
        ("voxel_size: 0.1", "voxel_size: -0.35", r"metres above 0 and below 100, got -0\.35"),
        ("rounding: round", "rounding: up", "rounding must be one of"),
        ("representative: first", "representative: last", "representative must be one of"),
        ("remission]", "color]", "features must come from"),
        ("input:", "inputs:", "entries must be among"),
        ("rounding: round", "rounding: round, range: 3", r"got input\.range"),
        ("num_classes: 19", "num_classes: 7", "classes must be listed"),
        ("model:", "classes: [10, 12]\nmodel:", r"raw ids, got \[12\]"),
        ("model:", "classes: 5\nmodel:", "classes must be a list of SemanticKITTI raw ids, got 5"),
        ("model:", "classes: [[10]]\nmodel:", r"raw ids, got \[\[10\]\]"),
        (
            "model:",
            "classes: [10, 40]\nmodel:",
            "num_classes must be 2, the number of classes, got 19; write num_classes: 2",
        ),
        (
            "model: {in_channels: 4, num_classes: 19",
            "classes: [10]\nmodel: {in_channels: 4, num_classes: one",
            "num_classes must be 1, the number of classes, got 'one'",
        ),
        (
            "model:",
            "network: spunet\nclasses: [10]\nmodel: {in_channels: 4}\nabout:",
            "num_classes must be 1, the number of classes, got none",
        ),
        ("in_channels: 4", "in_channels: 3", r"in_channels must be 4, the number of input\.feat"),
        ("[x, y, z, remission]", "x", "features must come from .* as a list, got 'x'"),
        ("model:", "label_map: mine\nmodel:", "label_map must be one of"),
        ("model:", "views: 0\nmodel:", "views must be a whole number from 1 to 16, got 0"),
        ("model: {", "model: [{", "must be YAML"),
    ],
)
def test_wrong_recipes_say_what_is_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = recipe(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ValueError, match=words) as caught:
        load_config(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_pipe_is_no_recipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    with pytest.raises(ValueError, match=r"a\.yaml: must be a file, got a pipe"):
        load_config(tmp_path / "a.yaml")


def test_absent_recipe() -> None:
    with pytest.raises(ValueError, match=r"nnn: must be a YAML file or the name.*there are demo"):
        load_config("n" * 300)
    with pytest.raises(ValueError, match=r"^no-such-recipe: must be a YAML file"):
        load_config("no-such-recipe")


def test_a_folder_is_named_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "empty.yaml", "demo"):
        Path(name).mkdir()
    for name in ("empty", "empty.yaml", "./empty", str(tmp_path / "empty")):
        with pytest.raises(ValueError, match="must be a YAML file, got a folder") as caught:
            load_config(name)
        assert str(caught.value).startswith(f"{name}: ")
    assert load_config("demo").weights == "demo.pt"
    Path("plain").write_text(GOOD)
    assert load_config("plain").name == "plain"


def test_weights_of_other_classes_are_told_from_other_widths(
    tmp_path: Path, demo: Segmenter
) -> None:
    text = Path("sparse3d/configs/demo.yaml").read_text().split("weights: demo.pt")
    text[1] = text[1].replace("num_classes: 11", "num_classes: 19").split("classes: [10")[0]
    config = load_config(recipe(tmp_path, "".join(text)))
    with pytest.raises(ValueError, match=r"must have 19 classes.*got 11; .*num_classes: 11"):
        Segmenter.load(config, demo.config.weights_path(), torch.device("cpu"))


def test_channels_say_nothing_of_the_mounting() -> None:
    names = ("dx", "dy", "dz", "height")
    values = point_features(SMALL.points, names, 0.1, "floor")
    assert np.abs(values[:, :3]).max() <= 0.5
    moved = SMALL.points + np.array([12.8, -6.4, 3.2, 0.5], np.float32)
    again = point_features(moved, names, 0.1, "floor")
    assert np.percentile(np.abs(values[:, 3] - again[:, 3]), 95) < 0.1  # other cells, near enough
    wrapped = np.abs(values[:, :3] - again[:, :3])
    assert np.minimum(wrapped, 1 - wrapped).max() < 2e-3
    own = point_features(SMALL.points, ("x", "remission"), 0.1, "floor")
    np.testing.assert_array_equal(own, SMALL.points[:, [0, 3]])
    with pytest.raises(ValueError, match="names must come from"):
        point_features(SMALL.points, ("range",), 0.1, "floor")


def test_tensor_and_grid_belong_together() -> None:
    names = ("x", "y", "z", "remission")
    tensor, grid = to_sparse(SMALL.points, voxel_size=0.2, features=names, representative="first")
    np.testing.assert_array_equal(tensor.features.numpy(), SMALL.points[grid.first])
    np.testing.assert_array_equal(tensor.indices.numpy(), grid.indices())
    assert tensor.batch_size == 1


def test_devices() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(ValueError, match="device must be auto"):
        choose_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="present on this machine"):
            choose_device("cuda")


def test_weights_are_small_and_fit(demo: Segmenter) -> None:
    path = demo.config.weights_path()
    assert path is not None
    assert path.stat().st_size <= 2_000_000
    assert all(value.dtype != torch.float64 for value in load_weights(path).values())


def test_wrong_weights(tmp_path: Path) -> None:
    config, cpu = load_config("demo"), torch.device("cpu")
    path = tmp_path / "w.pt"
    with pytest.raises(ValueError, match="cannot be read"):
        load_weights(path)
    path.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="must be a file of weights"):
        load_weights(path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="must be tensors by name, got list"):
        load_weights(path)
    torch.save({"state_dict": {"a": 3}}, path)
    with pytest.raises(ValueError, match="got 1 entries, none of them one"):
        load_weights(path)
    torch.save({"state_dict": {"a": torch.zeros(1)}}, path)
    with pytest.raises(ValueError, match=r"must fit the network of config 'demo'.*--config"):
        Segmenter.load(config, path, cpu)


def as_torchsparse_stores(kernel: torch.Tensor) -> torch.Tensor:
    """[out, kz, ky, kx, in] as [K, in, out] over (x, y, z): x fastest where K is odd, else z."""
    if kernel[0, ..., 0].numel() % 2:
        return kernel.permute(1, 2, 3, 4, 0).flatten(0, 2)
    return kernel.permute(3, 2, 1, 4, 0).flatten(0, 2)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_weights_of_other_libraries_give_the_same_labels(
    demo: Segmenter, tmp_path: Path, prefix: str
) -> None:
    kernels = {
        name: module.kernel().detach()
        for name, module in demo.model.named_modules()
        if hasattr(module, "kernel")
    }
    state = {}
    for name, value in demo.model.state_dict().items():
        layer = name.removesuffix(".weight")
        if layer in kernels:
            kernel = as_torchsparse_stores(kernels[layer])
            state[f"{prefix}{layer}.kernel"] = kernel[0] if len(kernel) == 1 else kernel
        else:
            state[prefix + name] = value
    torch.save({"model": state}, tmp_path / "theirs.pt")
    theirs = Segmenter.load(demo.config, tmp_path / "theirs.pt", torch.device("cpu"))
    assert any(not torch.equal(k, k.flip(1)) for k in kernels.values())
    for name, value in demo.model.state_dict().items():
        assert torch.equal(theirs.model.state_dict()[name], value), name


def test_any_number_of_points(demo: Segmenter) -> None:
    stages = Stages()
    assert demo.predict(SMALL.points[:0], stages).shape == (0,)
    for count in (1, 2, 50):
        labels = demo.predict(SMALL.points[:count], stages)
        assert labels.shape == (count,)
        assert labels.dtype == np.uint32
        assert set(labels.tolist()) <= set(demo.config.classes)
    same = np.repeat(SMALL.points[:1], 300, axis=0)
    assert len(set(demo.predict(same).tolist())) == 1
    assert set(stages.seconds) == {"voxelise", "network"}


def test_the_same_scan_gives_the_same_labels(demo: Segmenter) -> None:
    first = demo.predict(SMALL.points)
    np.testing.assert_array_equal(first, demo.predict(SMALL.points))
    moved = SMALL.points + np.array([0, 0, 0, 0.0], np.float32)
    moved[:, 3] = 0  # remission is not looked at
    np.testing.assert_array_equal(first, demo.predict(moved))


class Compass(torch.nn.Module):
    """Scores that depend on where a point lies, so that turning the scan changes them."""

    def forward(self, x: SparseConvTensor) -> torch.Tensor:
        own = x.features[:, :2]
        return torch.cat([own, -own, own.new_ones(len(own), 1)], 1)


@pytest.mark.parametrize("views", [1, 2, 4])
def test_views_are_averaged(demo: Segmenter, views: int) -> None:
    features = ("x", "y", "z", "remission")
    looks = tuple(View.numbered(number) for number in range(views))
    config = replace(demo.config, features=features, representative="first", views=looks)
    points = np.zeros((400, 4), np.float32)
    points[:, 0], points[:, 1] = np.divmod(np.arange(400), 20)
    points[:, :2] -= 9.3
    labels = Segmenter(config, Compass(), torch.device("cpu")).predict(points)
    total = torch.zeros(400, 5)
    for view in range(views):
        own = torch.from_numpy(turned(points, view)[:, :2])
        total += torch.cat([own, -own, torch.ones(400, 1)], 1).log_softmax(1)
    np.testing.assert_array_equal(labels, np.array(config.classes)[total.argmax(1).numpy()])


def test_turning_moves_no_point_up_or_away() -> None:
    np.testing.assert_array_equal(turned(SMALL.points, 0), SMALL.points)
    for view in range(1, 8):
        moved = turned(SMALL.points, view)
        np.testing.assert_array_equal(moved[:, 2:], SMALL.points[:, 2:])
        np.testing.assert_allclose(
            np.hypot(moved[:, 0], moved[:, 1]),
            np.hypot(SMALL.points[:, 0], SMALL.points[:, 1]),
            rtol=1e-5,
        )


def test_dropped_points_are_unlabeled(demo: Segmenter, tmp_path: Path) -> None:
    points = SMALL.points[:3000].copy()
    points[[5, 70], 1] = np.nan
    write_scan(tmp_path / "a.bin", points)
    scan = read_scan(tmp_path / "a.bin", drop_invalid=True)
    labels = demo.label(scan)
    assert labels.shape == (3000,)
    assert labels[[5, 70]].tolist() == [0, 0]
    kept = np.delete(np.arange(3000), [5, 70])
    np.testing.assert_array_equal(labels[kept], demo.predict(scan.points))


def test_results_are_all_there_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_scan(tmp_path / "a.bin", SMALL.points)
    scan = read_scan(tmp_path / "a.bin")
    out = tmp_path / "out"
    made = write_results(out, "a", scan, SMALL.labels, "a street")
    assert sorted(path.name for path in out.iterdir()) == ["a.label", "a.ply", "a.png"]
    assert all(path.exists() for path in made)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("sparse3d.data.segment.write_labels", fail)
    with pytest.raises(OSError, match="disk full"):
        write_results(tmp_path / "other", "b", scan, SMALL.labels, "a street")
    assert list((tmp_path / "other").iterdir()) == []


def test_coarse_classes_cover_what_is_scored() -> None:
    coarse = to_coarse(np.array(list(RAW_NAMES)))
    ignored = {raw for raw, c in zip(RAW_NAMES, coarse.tolist(), strict=True) if c == 0}
    assert ignored == {0, 1, 52, 99}
    table = Confusion(COARSE_NAMES)
    table.add(to_coarse(np.array([40, 48, 10, 50])), to_coarse(np.array([72, 30, 252, 51])))
    scores = coarse_scores(table)
    assert scores["ground"] == pytest.approx(1 / 2)  # the person called ground is a false alarm
    assert scores["vehicle"] == pytest.approx(1)
    assert scores["structure"] == pytest.approx(1)
    assert scores["mean"] == pytest.approx(2.5 / 5)


def test_raw_scores_by_hand() -> None:
    table = RawConfusion((10, 40))
    table.add(np.array([10, 40, 40, 10], np.uint32), np.array([10, 10, 1, 40 | 1 << 16], np.uint32))
    assert table.scores() == pytest.approx({"car": 1 / 3, "road": 0.0})


def test_held_out_means_held_out(demo: Segmenter) -> None:
    with pytest.raises(ValueError, match="seeds must lie in"):
        held_out(demo, [FIRST_TRAINING_SEED])


def test_shipped_weights_on_streets_they_never_saw(demo: Segmenter) -> None:
    """Two scans are few: the mean over classes that occur is what they can tell."""
    table = held_out(demo, range(1000, 1002))
    assert table.confusion.mean_present() > 0.85
    assert table.confusion.accuracy() > 0.93
    scores = table.scores()
    assert min(scores[name] for name in ("road", "car", "building", "vegetation")) > 0.85


@pytest.mark.nightly
def test_shipped_weights_hold_their_scores_on_the_streets_of_the_report(demo: Segmenter) -> None:
    table = held_out(demo, range(100, 124))
    assert table.confusion.mean() >= 0.90
    assert min(table.scores().values()) >= 0.75


@pytest.mark.data
def test_shipped_weights_on_a_real_frame(demo: Segmenter, shared: Path) -> None:
    lidar = shared / "data" / "lidar"
    scan = read_scan(lidar / "kitti_spvnas_000000.bin")
    truth = np.fromfile(lidar / "kitti_spvnas_000000.label", "<u4")
    table = Confusion(COARSE_NAMES)
    table.add(to_coarse(demo.label(scan)), to_coarse(truth))
    scores = coarse_scores(table)
    assert scores["ground"] >= 0.80
    assert scores["vehicle"] >= 0.30
    assert scores["mean"] >= 0.40


def test_scan_errors_are_value_errors() -> None:
    assert issubclass(ScanError, ValueError)


def test_weights_that_do_not_fit_get_a_way_out_of_commands(tmp_path: Path) -> None:
    torch.save({"stem.0.weight": torch.rand(16, 3, 3, 3, 4)}, tmp_path / "part.pt")
    config = load_config("demo")
    with pytest.raises(ValueError, match=r"missing: .*; name the config .*\(--config\)$") as caught:
        Segmenter.load(config, tmp_path / "part.pt", torch.device("cpu"))
    assert "strict" not in str(caught.value)
    assert "build the model" not in str(caught.value)
    # Names of entries are the file's: they come through, whatever they look like.
    names = ["a; build the model.weight", "say which library.weight", "source='x'.weight"]
    model = build(config)
    odd = model.state_dict() | {name: torch.rand(1) for name in names}
    torch.save(odd, tmp_path / "odd.pt")
    with pytest.raises(ValueError, match="3 unexpected: ") as caught:
        Segmenter.load(config, tmp_path / "odd.pt", torch.device("cpu"))
    for name in names:
        assert name in str(caught.value)
    state = {"a.0.kernel": torch.rand(8, 3, 4), "b.1.kernel": torch.rand(27, 4, 4)}
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"sparse3d convert, say which .*--layout minkowski"):
        Segmenter.load(config, tmp_path / "other.pt", torch.device("cpu"))
