"""Pointcept's SpUNet recipe: its test written out in plain loops, its checkpoints, its training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from kitti_folder import make_kitti
from typer.testing import CliRunner

from sparse3d import SparseConvTensor
from sparse3d.cli import app
from sparse3d.data import Sensor, simulate
from sparse3d.data.augment import Augment, Cloud
from sparse3d.data.batch import Voxels, collate, in_range, target_table, voxelise
from sparse3d.data.clip import clipped
from sparse3d.data.config import SegmentConfig, dump_config, load_config, parse_config
from sparse3d.data.grid import passes, random_points, to_grid
from sparse3d.data.inputs import to_sparse
from sparse3d.data.kitti import read_labels, read_scan
from sparse3d.data.networks import NETWORKS
from sparse3d.data.segment import Segmenter, build
from sparse3d.data.semantic_kitti import LABEL_MAPS
from sparse3d.data.views import View, parse_views
from sparse3d.models.minkunet import MinkUNet
from sparse3d.models.spunet import SpUNet
from sparse3d.train import load_train_config
from sparse3d.train.judge import Judge
from sparse3d.train.streams import Items

CPU = torch.device("cpu")
PUBLISHED = load_config("spunet_pointcept")
SMALL = {"channels": [6, 6, 8, 8, 8, 8, 6, 6], "layers": [1] * 8, "base_channels": 5}
STREET = simulate(5, Sensor(beams=16, azimuths=128))
CLOUD = Cloud(STREET.points, STREET.labels)


def small(**change: object) -> SegmentConfig:
    """The published recipe with a narrow network."""
    model = dict(PUBLISHED.model) | SMALL
    return replace(PUBLISHED, model=model, **change)  # type: ignore[arg-type]


def randomised(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Weights and statistics that leave no axis, channel or class like another."""
    source = torch.Generator().manual_seed(seed)
    for name, value in model.state_dict().items():
        if name.endswith("running_var"):
            value.uniform_(0.5, 1.5, generator=source)
        elif value.is_floating_point():
            value.normal_(0, 0.3, generator=source)
    model.eval()
    names = ("x", "y", "z", "remission")
    x, _ = to_sparse(STREET.points, voxel_size=0.05, features=names, representative="first")
    with torch.inference_mode():
        logits = model(x)
    network = next(one for one in NETWORKS.values() if type(model) is one.build)
    bias = model.get_parameter(network.bias).detach()
    weight = model.get_parameter(network.bias.replace("bias", "weight")).detach()
    weight.mul_(2 / logits.std(0).mean())  # else one class wins everywhere, and by a hair
    bias.copy_(-2 / logits.std(0).mean() * (logits.median(0).values - bias))
    return model


def as_published(points: np.ndarray, network: Callable[[np.ndarray, np.ndarray], np.ndarray]):
    """Scores of every point, in the publication's steps, point by point in float64.

    Args:
        points: The scan.
        network: Logits of voxels from their cells x, y, z and the features of their points.
    """
    seen = points.astype(np.float64)
    for row in seen:
        for axis, (low, high) in enumerate([(-35.2, 35.2), (-35.2, 35.2), (-4, 2)]):
            row[axis] = min(max(row[axis], low), high)
    fine: dict[tuple[int, ...], list[int]] = {}
    for number, row in enumerate(seen):
        fine.setdefault(tuple(int(v) for v in np.floor(row[:3] / 0.025)), []).append(number)
    kept = [members[0] for members in fine.values()]
    total = np.zeros((len(kept), 19))
    for quarter in range(4):
        c, s = np.cos(quarter * np.pi / 2), np.sin(quarter * np.pi / 2)
        moved = seen[kept].copy()
        moved[:, 0] = c * seen[kept, 0] - s * seen[kept, 1]
        moved[:, 1] = s * seen[kept, 0] + c * seen[kept, 1]
        voxels: dict[tuple[int, ...], list[int]] = {}
        for number, row in enumerate(moved):
            voxels.setdefault(tuple(int(v) for v in np.floor(row[:3] / 0.05)), []).append(number)
        names = sorted(voxels)
        cells = np.array(names) - np.array(names).min(0)
        for turn in range(max(len(members) for members in voxels.values())):
            chosen = [voxels[name][turn % len(voxels[name])] for name in names]
            logits = network(cells, moved[chosen].astype(np.float32)).astype(np.float64)
            odds = np.exp(logits - logits.max(1, keepdims=True))
            for number, share in zip(chosen, odds / odds.sum(1, keepdims=True), strict=True):
                total[number] += share
    scores = np.zeros((len(points), 19))
    for place, members in enumerate(fine.values()):
        scores[members] = total[place]
    return scores


def run_on(model: torch.nn.Module, order: tuple[int, int, int]) -> Callable:
    """The network on cells x, y, z, fed in that order of axes."""

    def network(cells: np.ndarray, features: np.ndarray) -> np.ndarray:
        rows = np.concatenate([np.zeros((len(cells), 1)), cells[:, order]], 1).astype(np.int32)
        with torch.inference_mode():
            x = SparseConvTensor(torch.from_numpy(features), torch.from_numpy(rows), None, 1)
            return model(x).numpy()

    return network


# What a scan like KITTI's has and a thin simulated one lacks: many points in a cell, far points,
# points on borders.
CROWD = np.concatenate(
    [
        STREET.points,
        STREET.points[::7] + np.float32(0.013),
        np.repeat(STREET.points[:5], 3, axis=0) + np.linspace(0, 0.03, 15)[:, None].astype("f4"),
        [[35.2, -35.2, 2, 0.5], [-90, 90, -20, 0.1], [0, 0, 0, 0], [0.05, 0.1, 0.15, 1]],
    ]
).astype(np.float32)
CROWD[:, 3] = CROWD[:, 3].clip(0, 1)


def test_every_point_gets_the_scores_of_the_publication() -> None:
    config = small()
    model = randomised(build(config))
    found = Segmenter(config, model, CPU)
    expected = as_published(CROWD, run_on(model, (2, 1, 0)))
    labels = found.predict(CROWD)
    seen, _ = clipped(CROWD.astype(np.float64), config.clip, config.outside)
    scores = found.scores(seen).numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-4)
    sure = np.diff(np.sort(expected, 1)[:, -2:])[:, 0] > 1e-3
    assert sure.mean() > 0.95
    raw = np.array(config.classes)[expected.argmax(1)]
    np.testing.assert_array_equal(labels[sure], raw[sure])
    assert len(set(labels.tolist())) > 3
    counts = np.round(expected.sum(1))
    assert counts.min() >= 4  # once in each of the four views
    assert len(set(counts.tolist())) > 1  # and those of nearly empty voxels several times


def test_passes_against_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    points = np.floor(rng.random((400, 3)) * 4) + 0.5
    grid = to_grid(points, 1.0)
    members: list[list[int]] = [[] for _ in grid.coords]
    for row, voxel in enumerate(grid.inverse.tolist()):
        members[voxel].append(row)
    found = [rows.tolist() for rows in passes(grid)]
    assert len(found) == max(map(len, members)) > 5
    assert found == [[own[turn % len(own)] for own in members] for turn in range(len(found))]
    assert {row for rows in found for row in rows} == set(range(400))
    assert found[0] == grid.first.tolist()
    assert list(passes(to_grid(np.zeros((0, 3)), 1.0))) == []


def test_training_takes_a_random_point_and_its_label() -> None:
    config = small(voxel_size=2.0)
    table = target_table(config.classes, LABEL_MAPS["official"])
    grid = to_grid(CLOUD.points, 2.0, dtype="float64")
    place = {bytes(row): number for number, row in enumerate(CLOUD.points)}
    chosen = []
    for seed in (0, 0, 1):
        made = voxelise(CLOUD, config, table, np.random.default_rng(seed))
        rows = np.array([place[bytes(row)] for row in made.features])
        np.testing.assert_array_equal(grid.inverse[rows], np.arange(len(grid.coords)))
        np.testing.assert_array_equal(made.targets, table[CLOUD.labels[rows] & 0xFFFF])
        chosen.append(rows)
    np.testing.assert_array_equal(chosen[0], chosen[1])
    assert (chosen[0] != chosen[2]).mean() > 0.3
    often = np.zeros(len(CLOUD.points))
    for seed in range(300):
        often[random_points(grid, np.random.default_rng(seed))] += 1
    full = np.bincount(grid.inverse) == 4
    share = often[full[grid.inverse]] / 300
    assert share.min() > 0.1
    assert share.max() < 0.45


@pytest.mark.parametrize(
    "prefix", ["module.backbone.", pytest.param("backbone.", marks=pytest.mark.nightly)]
)
def test_published_checkpoints_segment_and_score(tmp_path: Path, prefix: str) -> None:
    """As Pointcept stores them: its cells are x, y, z, so its kernels' axes are too."""
    theirs = randomised(SpUNet(4, 19, **SMALL), 7)
    state = {prefix + name: value for name, value in theirs.state_dict().items()}
    weights, recipe = tmp_path / "model_best.pth", tmp_path / "spunet.yaml"
    torch.save({"epoch": 50, "best_metric_value": 0.6, "state_dict": state}, weights)
    recipe.write_text(dump_config(small(name="spunet")))
    root = make_kitti(tmp_path / "kitti", {8: 2})
    scans = sorted(root.glob("sequences/08/velodyne/*.bin"))
    network = run_on(theirs, (0, 1, 2))
    expected = [
        np.array(PUBLISHED.classes)[as_published(read_scan(scan).points, network).argmax(1)]
        for scan in scans
    ]
    given = ["--config", str(recipe), "--checkpoint", str(weights), "--device", "cpu"]
    out = tmp_path / "labels"
    result = CliRunner().invoke(app, ["segment", *map(str, scans), *given, "--out", str(out)])
    assert result.exit_code == 0, result.output
    found = [read_labels(out / f"{scan.stem}.label") for scan in scans]
    for one, other in zip(found, expected, strict=True):
        assert (one == other).mean() > 0.999  # ties in the last bits apart
    result = CliRunner().invoke(app, ["eval", str(root), *given, "--out", str(tmp_path / "e")])
    assert result.exit_code == 0, result.output
    numbers = json.loads((tmp_path / "e" / "results.json").read_text())
    merged = LABEL_MAPS["official"].forward
    truth = np.concatenate([read_labels(p) for p in sorted(root.glob("sequences/08/labels/*"))])
    pairs = [
        (merged[p], merged[t & 0xFFFF])
        for p, t in zip(np.concatenate(found).tolist(), truth.tolist(), strict=True)
        if merged[t & 0xFFFF]
    ]
    iou = []
    for kind in range(1, 20):
        hit = sum(p == t == kind for p, t in pairs)
        iou.append(hit / max(sum(kind in pair for pair in pairs), 1))
    assert numbers["miou"] == pytest.approx(sum(iou) / 19, abs=1e-12)
    assert numbers["miou"] > 0


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": SpUNet(4, 19, **SMALL).state_dict()}, tmp_path / "w.pth")
    narrow = replace(load_config("minkunet18_w16"), model={"widths": [4] * 9})
    with pytest.raises(ValueError, match=r"must fit the network of config 'minkunet18_w16'"):
        Segmenter.load(narrow, tmp_path / "w.pth", CPU)


def test_recipes_name_their_network(tmp_path: Path) -> None:
    assert {name: network.build for name, network in NETWORKS.items()} == {
        "minkunet": MinkUNet,
        "spunet": SpUNet,
    }
    for name, config in (("minkunet", load_config("demo")), ("spunet", small())):
        model = build(config)
        bias = model.get_parameter(NETWORKS[name].bias)
        with torch.no_grad():
            for value in model.parameters():
                value.zero_()
            bias.copy_(torch.arange(len(bias)))
            x = SparseConvTensor(torch.ones(1, 4), torch.zeros(1, 4, dtype=torch.int32), None, 1)
            assert model.eval()(x)[0].tolist() == list(range(len(config.classes)))
    table = yaml.safe_load(dump_config(PUBLISHED))
    assert parse_config(table, tmp_path / "a.yaml") == PUBLISHED
    with pytest.raises(ValueError, match=r"config 'a': model: .*unexpected keyword argument"):
        build(parse_config(table | {"network": "minkunet", "name": "a"}, tmp_path / "a.yaml"))
    for change, words in (
        ({"network": "spunets"}, r"network must be one of \['minkunet', 'spunet'\]"),
        ({"average": "logits"}, r"average must be one of \['log_probability', 'probability'\]"),
        ({"input": table["input"] | {"thin": -1}}, "input.thin must be a number of metres"),
        (
            {"input": table["input"] | {"devoxelise": "trilinear"}},
            r"input\.devoxelise must be nearest for input\.representative each, got 'trilinear'",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            parse_config(table | change, tmp_path / "a.yaml")


def test_views_may_be_every_choice_from_lists() -> None:
    assert PUBLISHED.views == (View(0), View(90), View(180), View(270))
    lists = {"flip": ["none", "x", "y", "xy"], "rotate": [-45, 0, 45], "scale": [0.95, 1, 1.05]}
    looks = parse_views(lists, "a.yaml")
    assert len(set(looks)) == 36
    assert looks[0] == View(-45, "none", 0.95)
    assert looks[-1] == View(45, "xy", 1.05)
    for value, words in (
        ({}, "a.yaml: views must be 1 to 64 choices, got 0"),
        ({"rotate": []}, "must be 1 to 64 choices, got 0"),
        ({"rotate": [1] * 10, "scale": [1] * 10}, "must be 1 to 64 choices, got 100"),
        ({"rotate": 90}, r"views\.rotate must be a list, got 90"),
        ({"rotates": [90]}, r"got views\[0\]\.rotates"),
    ):
        with pytest.raises(ValueError, match=words):
            parse_views(value, "a.yaml")


def test_views_keep_the_type_of_the_points() -> None:
    points = np.array([[35.2, 1, 2, 3]])
    exact = View(90).apply(points)
    assert exact.dtype == np.float64
    assert exact[0].tolist() == [6.123233995736766e-17 * 35.2 - 1.0, 35.2 + 6e-17, 2, 3]
    assert View(90).apply(points.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("name", ["minkunet", "spunet"])
def test_probabilities_or_their_logarithms_are_averaged(name: str) -> None:
    base = load_config("demo") if name == "minkunet" else small(representative="first", thin=0.0)
    model = randomised(build(base))
    looks, found = (View(0), View(30)), {}
    for average in ("probability", "log_probability"):
        both, *parts = (
            Segmenter(replace(base, views=views, average=average), model, CPU).scores(STREET.points)
            for views in (looks, looks[:1], looks[1:])
        )
        torch.testing.assert_close(both, parts[0] + parts[1])
        found[average] = parts[0]
    torch.testing.assert_close(found["log_probability"].exp(), found["probability"])
    torch.testing.assert_close(found["probability"].sum(1), torch.ones(len(STREET.points)))


def test_spunet_scores_between_voxels() -> None:
    model = randomised(build(small()))
    rows = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 1]], dtype=torch.int32)
    x = SparseConvTensor(torch.rand(2, 4), rows, None, 1)
    with torch.inference_mode():
        own = model(x)
        places = torch.tensor([[0, 0, 0, 0.25], [0, 0, 0, 1.0]])
        between = model(x, places)
    torch.testing.assert_close(between, torch.stack([0.75 * own[0] + 0.25 * own[1], own[1]]))


def test_the_clip_comes_between_turn_and_scale() -> None:
    config = small(clip=(-10.0, -10.0, -5.0, 10.0, 10.0, 5.0))
    moves = Augment(rotate=180, scale=(1.1, 1.1))

    def other() -> Cloud:
        raise AssertionError

    rng = np.random.default_rng(2)
    made = moves(CLOUD, rng, other, lambda cloud: in_range(cloud, config))
    most = np.abs(made.points[:, :2]).max(0)
    np.testing.assert_allclose(most, 11, rtol=1e-6)
    walls = (np.abs(made.points[:, :2]) > 11 - 1e-4).any(1).mean()
    far = np.abs(moves(CLOUD, np.random.default_rng(2), other).points[:, :2]).max(1) > 11
    assert walls == pytest.approx(far.mean())
    dropped = in_range(CLOUD, replace(config, outside="drop"))
    inside = (np.abs(CLOUD.points[:, :3]) <= [10, 10, 5]).all(1)
    np.testing.assert_array_equal(dropped.labels, CLOUD.labels[inside])


def test_a_turn_or_a_shake_may_be_rarer_or_bounded() -> None:
    moves = Augment(rotate=180, rotate_chance=0.5)
    same = [
        np.array_equal(moves(CLOUD, np.random.default_rng(n), lambda: CLOUD).points, CLOUD.points)
        for n in range(60)
    ]
    assert 15 < sum(same) < 45
    moves = Augment(jitter=0.005, jitter_least=0.005, jitter_limit=0.006)
    shift = moves(CLOUD, np.random.default_rng(0), lambda: CLOUD).points - CLOUD.points
    close = CLOUD.points[:, 2:3] > -20  # float32 keeps micrometres there
    bounded = (np.abs(shift[:, 2:3][close]) > 0.006 - 1e-5).mean()
    assert np.abs(shift[:, :3]).max() < 0.006 + 1e-5
    assert bounded == pytest.approx(0.230, abs=0.02)  # beyond 1.2 standard deviations


def test_two_clouds_of_a_batch_become_one() -> None:
    def voxels(xs: list[int], joins: bool = False) -> Voxels:
        coords = np.array([[0, 0, x] for x in xs], np.int32).reshape(-1, 3)
        values = np.array(xs, np.float32)[:, None] + 100 * joins
        return Voxels(values, coords, np.array(xs, np.int64) + 50 * joins, joins=joins)

    batch = collate([voxels([1, 2]), voxels([5, 2, 9], True), voxels([3]), voxels([], True)])
    assert batch.clouds == 2
    assert batch.indices[:, 0].tolist() == [0, 0, 0, 0, 1]
    assert batch.indices[:, 3].tolist() == [1, 2, 5, 9, 3]
    assert batch.features[:, 0].tolist() == [1, 2, 105, 109, 3]
    assert batch.targets.tolist() == [1, 2, 55, 59, 3]
    assert collate([voxels([1], True)]).clouds == 1


TRAIN = """
recipe: RECIPE
data: {kind: kitti, root: ROOT, train: [3], val: [8]}
augment: {rotate: 180, rotate_chance: 0.5, scale: [0.9, 1.1], flip: xy, jitter: 0.005,
          jitter_least: 0.005, jitter_limit: 0.02, mix3d: MIX}
optimizer: {kind: adamw, rate: 0.002, weight_decay: 0.005}
schedule: {kind: one_cycle, warmup: 0.5, start: 0.1, final: 0.001, momentum: [0.85, 0.95]}
steps: 3
batch: 3
"""


def test_the_published_training_runs_and_its_recipe_scores(tmp_path: Path) -> None:
    root = make_kitti(tmp_path / "kitti", {3: 3, 8: 1})
    (tmp_path / "r.yaml").write_text(dump_config(small(name="r", views=(View(0), View(90)))))
    path = tmp_path / "t.yaml"
    path.write_text(
        TRAIN.replace("RECIPE", "r.yaml").replace("ROOT", str(root)).replace("MIX", "1")
    )
    config = load_train_config(path)
    shipped = load_train_config("train_spunet")
    assert config.augment == replace(shipped.augment, mix3d=1)
    assert (config.rates.start, config.rates.momenta) == (0.1, (0.85, 0.95))
    items = Items(_Same(), config)
    assert [items[count].joins for count in range(7)] == [False, True, False] * 2 + [False]
    rare = Items(_Same(), replace(config, augment=shipped.augment, batch=2))
    often = [rare[count].joins for count in range(60)]
    assert not any(often[::2])
    assert 0.5 < np.mean(often[1::2]) < 1
    out = tmp_path / "run"
    result = CliRunner().invoke(app, ["train", str(path), "--out", str(out), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    state = torch.load(out / "last.pt", weights_only=False)
    groups = state["optimizer"]["param_groups"] if isinstance(state, dict) else None
    assert groups is None or groups[0]["betas"] == pytest.approx((0.95, 0.999))
    given = ["--config", str(out / "recipe.yaml"), "--checkpoint", str(out / "best.pt")]
    result = CliRunner().invoke(
        app, ["eval", str(root), *given, "--out", str(tmp_path / "e"), "--device", "cpu"]
    )
    assert result.exit_code == 0, result.output


class _Same:
    """One cloud for every number."""

    def __len__(self) -> int:
        return 3

    def cloud(self, count: int) -> Cloud:
        return CLOUD

    def partner(self, count: int, rng: np.random.Generator) -> Cloud:
        return CLOUD


def test_scores_in_training_look_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_kitti(tmp_path / "kitti", {3: 1, 8: 1})
    config = replace(
        load_train_config("train_spunet"),
        recipe=small(),
        data=replace(load_train_config("train_spunet").data, root=str(root)),
    )
    calls = []

    class Counted(SpUNet):
        def forward(self, x, points=None):  # type: ignore[no-untyped-def]
            calls.append(len(x.features))
            return super().forward(x, points)

    from sparse3d.data.team import Team

    Judge(config, Team(), print).score(Counted(**config.recipe.model), CPU)
    assert len(calls) == 1


def test_mistakes_in_training_configs(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    good = TRAIN.replace("RECIPE", "spunet_pointcept").replace("ROOT", "a").replace("MIX", "0.8")
    for old, new, words in (
        ("batch: 3", "batch: 1", r"batch must be 2 at least for augment\.mix3d, got 1"),
        ("rotate: 180, ", "", r"augment\.rotate_chance must be left out without rotate"),
        ("jitter: 0.005,", "", r"augment\.jitter_least must be left out without jitter"),
        ("jitter_least: 0.005", "jitter_least: 0.5", r"jitter_least must be at most jitter"),
        ("kind: one_cycle", "kind: cosine", r"schedule\.momentum must be left out for kind cosine"),
        ("[0.85, 0.95]", "0.9", r"schedule\.momentum must be 2 numbers from 0 to 0\.9999"),
        ("kind: adamw,", "kind: sgd, momentum: 0.9,",
         r"optimizer\.momentum must be left out beside schedule\.momentum"),
        ("kind: kitti, root: a, train: [3], val: [8]}", "kind: streets, streets: 2}\nbalance: 2",
         "balance must be left out where not log-probabilities of one pass are averaged"),
    ):  # fmt: skip
        assert old in good
        path.write_text(good.replace(old, new, 1))
        with pytest.raises(ValueError, match=words):
            load_train_config(path)
