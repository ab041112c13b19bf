"""Voxels, targets, batches; clips, views and devoxelised scores."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from sparse3d import SparseConvTensor
from sparse3d.data import simulate
from sparse3d.data.augment import Cloud
from sparse3d.data.batch import IGNORE, Voxels, collate, target_table, voxelise
from sparse3d.data.clip import clipped
from sparse3d.data.config import dump_config, load_config, parse_config
from sparse3d.data.segment import Segmenter
from sparse3d.data.semantic_kitti import LABEL_MAPS
from sparse3d.data.simulate import Sensor
from sparse3d.data.views import View, parse_views

DEMO = load_config("demo")
OFFICIAL = LABEL_MAPS["official"]
STREET = simulate(4, Sensor(beams=24, azimuths=300))
CLOUD = Cloud(STREET.points, STREET.labels)


def test_targets_follow_the_map() -> None:
    table = target_table(DEMO.classes, OFFICIAL)
    assert [table[raw] for raw in DEMO.classes] == list(range(11))
    assert table[252] == table[10] == 0  # a moving car is a car
    assert table[60] == DEMO.classes.index(40)  # lane marking is road, officially
    assert table[[0, 1, 52, 99, 11, 7, 65535]].tolist() == [IGNORE] * 7
    assert target_table(DEMO.classes, LABEL_MAPS["spvnas"])[60] == IGNORE
    whole = target_table(load_config("minkunet18_w16").classes, OFFICIAL)
    for raw, train in OFFICIAL.forward.items():
        assert whole[raw] == train - 1 if train else whole[raw] == IGNORE


@pytest.mark.parametrize("representative", ["first", "mean"])
def test_voxels_against_a_plain_loop(representative: str) -> None:
    config = replace(DEMO, representative=representative, features=("x", "remission"))
    table = target_table(config.classes, OFFICIAL)
    made = voxelise(CLOUD, config, table, np.random.default_rng(0))
    cells = np.floor(CLOUD.points[:, :3] / np.float32(0.1)).astype(int)
    cells -= cells.min(0)
    members: dict[tuple[int, ...], list[int]] = {}
    for row, cell in enumerate(cells):
        members.setdefault(tuple(cell.tolist()), []).append(row)
    assert [tuple(c[::-1].tolist()) for c in made.coords] == list(members)
    for voxel, rows in enumerate(members.values()):
        raw = [int(table[CLOUD.labels[row] & 0xFFFF]) for row in rows]
        if representative == "first":
            np.testing.assert_array_equal(made.features[voxel], CLOUD.points[rows[0], [0, 3]])
            assert made.targets[voxel] == raw[0]
        else:
            mean = CLOUD.points[rows][:, [0, 3]].astype(np.float64).mean(0)
            np.testing.assert_allclose(made.features[voxel], mean, rtol=1e-5, atol=1e-6)
            votes = Counter(r for r in raw if r != IGNORE)
            best = min(votes, key=lambda k: (-votes[k], k)) if votes else IGNORE
            assert made.targets[voxel] == best


def test_too_many_voxels_are_thinned_in_order() -> None:
    table = target_table(DEMO.classes, OFFICIAL)
    whole = voxelise(CLOUD, DEMO, table, np.random.default_rng(0))
    some = voxelise(CLOUD, DEMO, table, np.random.default_rng(0), most=500)
    assert len(some.coords) == 500
    place = {bytes(c): i for i, c in enumerate(whole.coords)}
    rows = [place[bytes(c)] for c in some.coords]
    assert rows == sorted(rows)
    np.testing.assert_array_equal(some.features, whole.features[rows])
    np.testing.assert_array_equal(some.targets, whole.targets[rows])


def test_a_batch_is_its_clouds_empty_ones_too() -> None:
    table = target_table(DEMO.classes, OFFICIAL)
    one = voxelise(CLOUD, DEMO, table, np.random.default_rng(0))
    none = Voxels.none(4, "a.bin: is broken")
    batch = collate(
        [none, one, voxelise(CLOUD.pick(np.arange(0)), DEMO, table, np.random.default_rng(0)), one]
    )
    assert (batch.clouds, batch.notes) == (4, ("a.bin: is broken",))
    assert batch.indices.dtype == torch.int32
    assert batch.indices[:, 0].bincount(minlength=4).tolist() == [
        0,
        len(one.coords),
        0,
        len(one.coords),
    ]
    x = batch.tensor(torch.device("cpu"))
    assert x.batch_size == 4
    np.testing.assert_array_equal(x.indices[: len(one.coords), 1:], one.coords)
    assert len(collate([none]).targets) == 0


def test_clips() -> None:
    points = np.array([[0, 0, 0, 1], [5, 0, 0, 1], [1, 1, -9, 1]], np.float32)
    box = (-2.0, -2.0, -2.0, 2.0, 2.0, 2.0)
    seen, kept = clipped(points, box, "drop")
    assert kept.tolist() == [True, False, False]
    assert seen.tolist() == [[0, 0, 0, 1]]
    moved, kept = clipped(points, box, "clamp")
    assert kept.all()
    assert moved.tolist() == [[0, 0, 0, 1], [2, 0, 0, 1], [1, 1, -2, 1]]
    assert points[1, 0] == 5
    assert clipped(points, None, "drop")[0] is points
    with pytest.raises(ValueError, match="outside must be"):
        clipped(points, box, "ignore")


def test_a_clipped_point_has_no_label_or_that_of_the_border() -> None:
    config = replace(DEMO, clip=(-20.0, -20.0, -5.0, 20.0, 20.0, 5.0))
    model = Segmenter.load(DEMO, None, torch.device("cpu")).model
    far = np.abs(STREET.points[:, :2]).max(1) > 20
    assert 0 < far.sum() < len(far)
    labels = Segmenter(config, model, torch.device("cpu")).predict(STREET.points)
    near = Segmenter(DEMO, model, torch.device("cpu")).predict(STREET.points[labels > 0])
    assert (labels[far] == 0).all()
    np.testing.assert_array_equal(labels[labels > 0], near)
    clamped = replace(config, outside="clamp")
    assert (Segmenter(clamped, model, torch.device("cpu")).predict(STREET.points) > 0).all()


class Ramp(torch.nn.Module):
    """Scores that grow linearly with the voxel coordinate z, y, x."""

    def forward(self, x: SparseConvTensor, points: torch.Tensor | None = None) -> torch.Tensor:
        from sparse3d.models.minkunet import interpolated

        scores = x.indices[:, 1:].float()
        scores = torch.cat([scores, scores.new_zeros(len(scores), 1)], 1)
        return scores if points is None else interpolated(x.replace_feature(scores), points, 1)


@pytest.mark.parametrize("rounding", ["floor", "round"])
def test_trilinear_scores_are_linear_between_voxels(rounding: str) -> None:
    full = np.stack(np.meshgrid(*[np.arange(6) + 0.25] * 3), -1).reshape(-1, 3)
    points = np.concatenate([full, np.zeros((len(full), 1))], 1).astype(np.float32)
    inner = (np.abs(points[:, :3] - 3) < 1.5).all(1)
    config = replace(DEMO, voxel_size=1.0, rounding=rounding, classes=(10, 30, 40, 48))
    for how in ("nearest", "trilinear"):
        segmenter = Segmenter(
            replace(config, devoxelise=how, views=(View(),)), Ramp(), torch.device("cpu")
        )
        scores = segmenter.scores(points)
        found = (scores - scores[:, 3:])[:, [2, 1, 0]].numpy()
        middle = 0.5 if rounding == "floor" else 0.0
        exact = points[:, :3] - middle
        nearest = np.floor(points[:, :3]) if rounding == "floor" else np.rint(points[:, :3])
        np.testing.assert_allclose(
            found[inner], (exact if how == "trilinear" else nearest)[inner], atol=1e-4
        )


def test_views_by_number_and_by_name() -> None:
    assert parse_views(2, "a") == (View(), View(45))
    looks = parse_views([{"rotate": 90}, {"flip": "xy", "scale": 1.05}], "a")
    points = np.array([[1, 2, 3, 0.5]], np.float32)
    np.testing.assert_allclose(looks[0].apply(points), [[-2, 1, 3, 0.5]], atol=1e-6)
    np.testing.assert_allclose(looks[1].apply(points), [[-1.05, -2.1, 3.15, 0.5]], rtol=1e-6)
    with pytest.raises(ValueError, match=r"got views\[0\]\.rotates; write views\[0\]\.rotate"):
        parse_views([{"rotates": 90}], "a.yaml")
    with pytest.raises(ValueError, match="or list up to 64 tables"):
        parse_views([], "a.yaml")


GOOD = {
    "model": {"num_classes": 19, "in_channels": 1, "widths": [4] * 9},
    "input": {"voxel_size": 0.1, "rounding": "floor", "representative": "first", "features": ["x"]},
}


def test_recipes_say_how_points_are_clipped_and_scored() -> None:
    feed = GOOD["input"] | {
        "clip": [-1, -1, -1, 1, 1, 1],
        "outside": "clamp",
        "devoxelise": "trilinear",
    }
    made = parse_config(GOOD | {"input": feed, "views": [{"rotate": 90}]}, Path("a.yaml"))
    assert (made.clip, made.outside, made.devoxelise) == (
        (-1, -1, -1, 1, 1, 1),
        "clamp",
        "trilinear",
    )
    assert made.views == (View(90),)
    text = dump_config(made)
    assert parse_config(yaml.safe_load(text), Path("b.yaml")) == made
    for change, words in (
        ({"clip": [1, 2, 3]}, "clip must be six metres"),
        ({"clip": [1, 0, 0, 0, 1, 1]}, "clip must be six metres"),
        ({"outside": "keep"}, "outside must be one of"),
        ({"devoxelise": "linear"}, "devoxelise must be one of"),
        ({"outside": "clamp"}, r"a\.yaml: input\.outside must be left out without input\.clip"),
        ({"voxel_sise": 0.1}, r"got input\.voxel_sise; write input\.voxel_size"),
    ):
        with pytest.raises(ValueError, match=words):
            parse_config(GOOD | {"input": GOOD["input"] | change}, Path("a.yaml"))
    both = GOOD | {"classes": [10] * 19, "label_map": "spvnas"}
    with pytest.raises(ValueError, match=r"a\.yaml: label_map must be left out beside classes"):
        parse_config(both, Path("a.yaml"))
