"""Training configs: every one in the package loads, every mistake is one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("yaml")

from sparse3d.train import load_train_config

GOOD = """
recipe: demo
data: {kind: streets, streets: 4}
loss: {smoothing: 0.1}
optimizer: {kind: sgd, rate: 0.1}
steps: 10
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "a.yaml"
    path.write_text(text)
    return path


def test_every_config_in_the_package_loads() -> None:
    folder = Path(__file__).parents[2] / "configs"
    names = sorted(path.stem for path in folder.glob("train_*.yaml"))
    assert {"train_demo", "train_tiny", "train_spvnas", "train_minkunet34_3x"} <= set(names)
    for name in names:
        config = load_train_config(name)
        assert config.name == name
        assert len(config.recipe.classes) == config.recipe.model["num_classes"]


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    config = load_train_config(write(tmp_path, GOOD))
    assert (config.name, config.batch, config.amp, config.epochs) == ("a", 8, "none", 0)
    assert config.rates.weight_decay == 1e-4
    assert config.loss.smoothing == 0.1
    assert config.recipe.name == "demo"


def test_a_recipe_may_lie_beside_its_config(tmp_path: Path) -> None:
    demo = Path(__file__).parents[2] / "configs" / "demo.yaml"
    (tmp_path / "mine.yaml").write_text(
        demo.read_text().replace("voxel_size: 0.1", "voxel_size: 0.2")
    )
    made = load_train_config(write(tmp_path, GOOD.replace("recipe: demo", "recipe: mine.yaml")))
    assert made.recipe.voxel_size == 0.2


def test_only_what_changes_the_result_is_in_the_key(tmp_path: Path) -> None:
    one = load_train_config(write(tmp_path, GOOD))
    for line, same in (
        ("workers: 3", True),
        ("name: b", True),
        ("seed: 1", False),
        ("amp: bfloat16", False),
    ):
        two = load_train_config(write(tmp_path, GOOD + line))
        assert (one.fingerprint() == two.fingerprint()) == same, line


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("steps: 10", "stepps: 10", "got stepps; write steps"),
        ("smoothing", "smothing", r"got loss\.smothing; write loss\.smoothing"),
        ("rate: 0.1", "lr: 0.1", r"got optimizer\.lr; remove it"),
        ("steps: 10", "steps: 0", "one of steps and epochs must be given, got 0 and 0"),
        ("steps: 10", "steps: 1\nepochs: 1", "one of steps and epochs"),
        ("steps: 10", "steps: many", "steps must be a whole number from 0, got 'many'"),
        ("steps: 10", "steps: 1\nbatch: 0", "batch must be a whole number from 1, got 0"),
        ("steps: 10", "steps: 1\namp: half", "amp must be one of"),
        ("steps: 10", "steps: 1\ntensorboard: maybe", "tensorboard must be true or false"),
        ("kind: sgd", "kind: adam", r"optimizer\.kind must be one of .*, got 'adam'"),
        ("streets, streets: 4", "streets", r"data\.streets must be a whole number .* got none"),
        ("streets, streets: 4", "kitti", r"data\.root must be a text, got none"),
        ("streets: 4", "streets: 4, root: a", r"data\.root must be left out for kind streets"),
        ("smoothing: 0.1", "weights: [1, 2]", "weights must be 11 numbers"),
        (
            "recipe: demo",
            "recipe: dema",
            "dema: must be a YAML file or the name of one .*; write demo",
        ),
        ("recipe: demo\n", "", "recipe must be a text, got none"),
        ("loss: {smoothing: 0.1}", "loss: 3", "loss must be a table, got 3"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(ValueError, match=words) as caught:
        load_train_config(path)
    assert "\n" not in str(caught.value)
    assert "dema" in words or str(caught.value).startswith(str(path))


def test_an_absent_config() -> None:
    with pytest.raises(ValueError, match=r"train_tinny: must be a YAML file .*; write train_tiny"):
        load_train_config("train_tinny")
    with pytest.raises(
        ValueError, match=r"xyz: must be a YAML file .*; there are demo, minkunet18"
    ):
        load_train_config("xyz")


@pytest.mark.parametrize("rate", ["1e-3", "1.0e-3", "0.001", "1E-3"])
def test_a_rate_may_be_written_with_an_exponent(tmp_path: Path, rate: str) -> None:
    config = load_train_config(write(tmp_path, GOOD.replace("rate: 0.1", f"rate: {rate}")))
    assert config.rates.rate == 0.001


SGD = "optimizer: {kind: sgd, rate: 0.1}"
STREETS = "data: {kind: streets, streets: 4}"
KITTI = "data: {kind: kitti, root: a}"
ONES = "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (SGD, "optimizer: {kind: adamw, momentum: 0.9}",
         "optimizer.momentum must be left out for kind adamw, got 0.9"),
        (SGD, "optimizer: {momentum: 0.9}",
         "optimizer.momentum must be left out for kind adamw, got 0.9"),
        (SGD, "optimizer: {kind: adamw, nesterov: false}",
         "optimizer.nesterov must be left out for kind adamw, got False"),
        (SGD, "optimizer: {kind: sgd, momentum: 0, nesterov: true}",
         "optimizer.nesterov must be false for momentum 0, got True"),
        (SGD, "schedule: {kind: cosine, milestones: [0.5]}",
         "schedule.milestones must be left out for kind cosine, got [0.5]"),
        (SGD, "schedule: {milestones: [0.5]}",
         "schedule.milestones must be left out for kind cosine, got [0.5]"),
        (SGD, "schedule: {kind: constant, final: 0.1}",
         "schedule.final must be left out for kind constant, got 0.1"),
        (SGD, "schedule: {kind: milestones, milestones: [0.5], final: 0.1}",
         "schedule.final must be left out for kind milestones, got 0.1"),
        (SGD, "schedule: {kind: milestones}",
         "schedule.milestones must be at least one share of the steps for kind milestones, "
         "got none"),
        (SGD, "schedule: {kind: milestones, milestones: []}",
         "schedule.milestones must be at least one share of the steps for kind milestones, got []"),
        (STREETS, "data: {kind: streets, streets: 4, azimuths: 100}",
         "data.azimuths must be left out without beams, got 100"),
        (STREETS, "data: {kind: streets, streets: 4, beams: 8, azimuths: 0}",
         "data.azimuths must be a whole number from 1 to 10000, got 0"),
        (STREETS, KITTI + "\nbalance: 4", "balance must be left out for data.kind kitti, got 4"),
        ("{smoothing: 0.1}", "{weights: " + ONES + ", power: 0.5}",
         "loss.power must be left out beside weights, got 0.5"),
        ("{smoothing: 0.1}", "{weights: " + ONES.replace("1", "0") + "}",
         "loss.weights must be above 0 for one channel at least, got "
         "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"),
    ],
)  # fmt: skip
def test_entries_without_effect_are_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        load_train_config(path)
    assert str(caught.value) == f"{path}: {words}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SGD, "optimizer: {kind: sgd, momentum: 0}"),
        (SGD, "optimizer: {kind: sgd, momentum: 0, nesterov: false}"),
        (SGD, "schedule: {kind: one_cycle, final: 0.1}"),
        (SGD, "schedule: {kind: constant, warmup: 0}"),
        (SGD, "schedule: {kind: milestones, milestones: [0.5, 0.8]}"),
        (STREETS, "data: {kind: streets, streets: 4, beams: 8}"),
        (STREETS, KITTI + "\nbalance: 0"),
        ("{smoothing: 0.1}", "{weights: " + ONES + ", power: 0}"),
    ],
)
def test_entries_with_effect_or_that_say_none_are_taken(tmp_path: Path, old: str, new: str) -> None:
    load_train_config(write(tmp_path, GOOD.replace(old, new)))
