"""Class maps, colours and the official score."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparse3d.data import CLASS_NAMES, COLORS, LABEL_MAPS, Confusion, colors_of, read_labels
from sparse3d.data.semantic_kitti import RAW_NAMES

OFFICIAL = LABEL_MAPS["official"]


def test_every_raw_id_has_a_class_a_name_and_a_colour() -> None:
    assert set(OFFICIAL.forward) == set(RAW_NAMES) == set(COLORS)
    assert len(RAW_NAMES) == 34
    assert set(OFFICIAL.forward.values()) == set(range(20))


def test_inverse_is_a_right_inverse() -> None:
    train = np.arange(20)
    raw = OFFICIAL.to_raw(train)
    assert raw.dtype == np.uint32
    np.testing.assert_array_equal(OFFICIAL.to_train(raw), train)
    names = [RAW_NAMES[int(r)] for r in raw]
    assert names == ["unlabeled", *CLASS_NAMES[1:]]


def test_instances_are_masked_before_the_class_is_looked_up() -> None:
    raw = np.array([10, 252, 259, 60, 99, 1], np.uint32)
    expected = [1, 1, 5, 9, 0, 0]
    np.testing.assert_array_equal(OFFICIAL.to_train(raw | np.uint32(0xFFFF << 16)), expected)
    np.testing.assert_array_equal(OFFICIAL.to_train(raw.astype(np.int64)), expected)


def test_unknown_ids() -> None:
    raw = np.array([10, 40, 12, 65535])
    with pytest.raises(ValueError, match="got 12 at point 2; pass unknown='ignore'"):
        OFFICIAL.to_train(raw)
    np.testing.assert_array_equal(OFFICIAL.to_train(raw, unknown="ignore"), [1, 9, 0, 0])
    with pytest.raises(ValueError, match="unknown must be"):
        OFFICIAL.to_train(raw, unknown="skip")
    with pytest.raises(TypeError, match="integer dtype"):
        OFFICIAL.to_train(raw.astype(np.float32))
    with pytest.raises(ValueError, match=r"\[0, 19\]"):
        OFFICIAL.to_raw(np.array([20]))


def test_repositories_disagree_by_name() -> None:
    other = LABEL_MAPS["spvnas"]
    differ = {raw for raw in RAW_NAMES if other.forward[raw] != OFFICIAL.forward[raw]}
    assert differ == {13, 16, 60, 256, 257}
    assert all(other.forward[raw] == 0 for raw in differ)


def test_colours_are_red_green_blue() -> None:
    rows = colors_of(np.array([10, 40, 70, 81, 252, 7]))
    assert rows.tolist() == [
        [100, 150, 245],
        [255, 0, 255],
        [0, 175, 0],
        [255, 0, 0],
        [100, 150, 245],
        [128, 128, 128],
    ]


def by_hand(predicted: np.ndarray, true: np.ndarray, classes: range) -> list[float]:
    counted = true != 0
    rows = []
    for c in classes:
        hit = (predicted == c) & (true == c) & counted
        either = ((predicted == c) | (true == c)) & counted
        rows.append(hit.sum() / max(either.sum(), 1))
    return rows


def test_score_by_hand() -> None:
    rng = np.random.default_rng(0)
    predicted, true = rng.integers(0, 20, 5000), rng.integers(0, 17, 5000)
    score = Confusion(CLASS_NAMES)
    score.add(predicted[:2000], true[:2000])
    other = Confusion(CLASS_NAMES)
    other.add(predicted[2000:], true[2000:])
    score.merge(other)
    expected = by_hand(predicted, true, range(1, 20))
    np.testing.assert_allclose(score.iou()[1:], expected, rtol=1e-12)
    assert score.mean() == pytest.approx(np.mean(expected))
    counted = true != 0
    right = (predicted == true)[counted].sum()
    assert score.accuracy() == pytest.approx(right / (predicted[counted] != 0).sum())
    assert score.counts[3, 7] == ((predicted == 3) & (true == 7)).sum()


def test_absent_classes_count_zero_officially() -> None:
    score = Confusion(CLASS_NAMES)
    labels = np.array([1, 1, 9, 9, 0])
    score.add(np.array([1, 1, 9, 9, 4]), labels)  # a prediction on an ignored point is nothing
    assert score.mean() == pytest.approx(2 / 19)
    assert score.mean_present() == pytest.approx(1.0)
    assert score.present() == (1, 9)
    assert np.isnan(Confusion(CLASS_NAMES).mean_present())
    assert Confusion(CLASS_NAMES).mean() == 0


def test_bad_arguments() -> None:
    score = Confusion(("a", "b"), ignore=())
    with pytest.raises(ValueError, match=r"true must hold ids in \[0, 1\]"):
        score.add(np.array([0]), np.array([2]))
    with pytest.raises(ValueError, match="predicted must have shape"):
        score.add(np.array([0]), np.array([0, 1]))
    with pytest.raises(ValueError, match="ignore must hold"):
        Confusion(("a",), ignore=(1,))


@pytest.mark.data
def test_perfect_labels_of_a_real_frame(shared: Path) -> None:
    raw = read_labels(shared / "data" / "lidar" / "kitti_spvnas_000000.label")
    train = OFFICIAL.to_train(raw)
    score = Confusion(CLASS_NAMES)
    score.add(train, train)
    assert len(score.present()) == 13
    assert score.mean() == pytest.approx(13 / 19)
    assert score.mean_present() == pytest.approx(1.0)
    assert score.accuracy() == pytest.approx(1.0)
