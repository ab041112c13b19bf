"""What a page is filled with: legends, counts, colours, errors, and where points lie."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparse3d.data import COLORS, LABEL_MAPS, PointCloud, Sensor, simulate
from sparse3d.view import Scene, write_page
from sparse3d.view.page import page
from sparse3d.view.scene import _ends

STREET = simulate(5, Sensor(beams=16, azimuths=300))
COUNT = len(STREET.points)


def cloud(
    points: np.ndarray, kind: str = "kitti", total: int | None = None, **more: Any
) -> PointCloud:
    rows = np.arange(len(points)) if total is None else np.arange(total - len(points), total)
    return PointCloud(Path("a.bin"), kind, points, more, rows, total or len(points))


def street() -> PointCloud:
    return cloud(STREET.points[:, :3], remission=STREET.points[:, 3])


def legends(scene: Scene) -> Mapping[str, Any]:
    return {legend["name"]: legend["entries"] for legend in scene.describe()["legends"]}


def filled(text: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The scene and the arrays that a page holds."""
    found = re.search(r'id="scene">(.*?)</script>', text, re.DOTALL)
    assert found
    pattern = r'data-array="(\w+)" data-kind="(\w+)">(.*?)</script>'
    arrays = {name: np.frombuffer(base64.b64decode(data), kind)
              for name, kind, data in re.findall(pattern, text)}  # fmt: skip
    return json.loads(found[1]), arrays


def test_legend_has_official_colours_and_true_counts() -> None:
    scene = Scene(street(), STREET.labels)
    raw = STREET.labels & 0xFFFF
    entries = legends(scene)["class"]
    assert sum(entry["count"] for entry in entries) == COUNT
    assert [entry["count"] for entry in entries] == sorted(
        (entry["count"] for entry in entries), reverse=True
    )
    road = next(entry for entry in entries if entry["name"] == "road")
    assert road["color"] == list(COLORS[40]) == [255, 0, 255]
    assert road["count"] == (raw == 40).sum()
    codes = scene.arrays()["code"]
    np.testing.assert_array_equal(codes[:, 0] == road["code"], raw == 40)


def test_error_counts_are_those_of_the_official_classes() -> None:
    guess = STREET.labels.copy()
    guess[::3] = 70
    truth = STREET.labels.copy()
    truth[:50] = 0  # not scored
    scene = Scene(street(), guess, truth)
    to_train = LABEL_MAPS["official"].to_train
    own, true = to_train(guess), to_train(truth)
    right = int(((own == true) & (true > 0)).sum())
    scored = int((true > 0).sum())
    entries = {entry["name"]: entry["count"] for entry in legends(scene)["error"]}
    assert entries == {"right": right, "wrong": scored - right, "not scored": COUNT - scored}
    assert f"{100 * right / scored:.1f} % of {scored:,}" in scene.describe()["about"][1]
    modes = [mode["name"] for mode in scene.describe()["modes"]]
    assert modes == ["class", "truth", "error", "intensity", "height"]


def test_a_moving_car_taken_for_a_car_is_right() -> None:
    scene = Scene(cloud(np.eye(3, dtype=np.float32)), np.array([10, 10, 40], np.uint32),
                  np.array([252, 10, 48], np.uint32))  # fmt: skip
    assert scene.errors is not None
    assert scene.errors.tolist() == [0, 0, 1]


def test_labels_follow_the_rows_of_the_file() -> None:
    labels = np.zeros(10, np.uint32)
    labels[7:] = [10, 40, 70]
    scene = Scene(cloud(np.eye(3, dtype=np.float32), total=10), labels)
    assert {entry["name"] for entry in legends(scene)["class"]} == {"car", "road", "vegetation"}
    assert scene.arrays()["row"].tolist() == [7, 8, 9]
    with pytest.raises(ValueError, match="labels must have one entry for each of the 10 points"):
        Scene(cloud(np.eye(3, dtype=np.float32), total=10), labels[:3])


def test_what_the_page_holds_is_what_the_scene_says(tmp_path: Path) -> None:
    scene = Scene(street(), STREET.labels)
    write_page(tmp_path / "a.html", scene)
    text = (tmp_path / "a.html").read_text("utf-8")
    about, arrays = filled(text)
    assert about == json.loads(json.dumps(scene.describe()))
    np.testing.assert_array_equal(arrays["position"].reshape(-1, 3), STREET.points[:, :3])
    assert arrays["code"].reshape(-1, 4)[:, 0].max() == len(legends(scene)["class"]) - 1
    assert "paint" not in arrays
    assert len(text) < 24 * COUNT + 60_000


def test_a_page_asks_for_nothing() -> None:
    """No address, no import, no font: the page is all there is."""
    text = page(Scene(street(), STREET.labels))
    text = re.sub(r'data-kind="\w+">.*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"https?:|\bsrc=|@import|\bfetch\(|XMLHttpRequest|import\(|url\(", text)
    assert 'href="data:,"' in text


def test_names_cannot_break_out_of_the_page() -> None:
    evil = PointCloud(Path("</script><u>&.bin"), "kitti", np.eye(3, dtype=np.float32), {},
                      np.arange(3), 3)  # fmt: skip
    text = page(Scene(evil))
    assert "<u>" not in text
    assert filled(text)[0]["title"] == "script><u>&.bin"
    marked = PointCloud(Path("%%STYLE%%.bin"), "kitti", np.eye(3, dtype=np.float32), {},
                        np.arange(3), 3)  # fmt: skip
    assert filled(page(Scene(marked)))[0]["title"] == "%%STYLE%%.bin"


def test_map_coordinates_come_back() -> None:
    far = np.eye(3) + np.array([2_045_001.76, 1_267_501.19, 95.79])
    scene = Scene(cloud(far, "las"))
    back = scene.arrays()["position"].astype(np.float64) + scene.describe()["offset"]
    np.testing.assert_allclose(back, far, rtol=0, atol=1e-6)


def test_las_classes_have_their_names_and_others_a_number() -> None:
    points = np.random.default_rng(0).random((300, 3))
    las = Scene(cloud(points, "las", classification=np.repeat([2, 5, 77], 100).astype(np.uint8)))
    names = [entry["name"] for entry in legends(las)["class"]]
    assert sorted(names) == ["class 77", "ground", "high vegetation"]
    many = Scene(cloud(points, "npz", label=np.arange(300)))
    entries = legends(many)["class"]
    assert len(entries) == 255
    assert entries[0] == {"code": 254, "name": "46 rare classes", "color": [150] * 3, "count": 46}


def test_large_clouds_are_thinned_and_say_so() -> None:
    scene = Scene(street(), STREET.labels, most=1000)
    step = -(-COUNT // 1000)
    assert len(scene.points) == -(-COUNT // step)
    assert f"shows every {step}th point" in scene.notes[0]
    assert scene.arrays()["row"][1] == step
    with pytest.raises(ValueError, match="most must be at least 1"):
        Scene(street(), most=0)


@pytest.mark.parametrize("points", [np.zeros((1, 3)), np.full((50, 3), 7.0)])
def test_one_place_is_a_scene(points: np.ndarray) -> None:
    about, arrays = filled(page(Scene(cloud(points.astype(np.float32), "ply"))))
    assert np.isfinite(about["home"]["distance"])
    assert about["radius"] > 0
    assert len(arrays["position"]) == points.size


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [(-3.2, 1.07, ["-3.20", "1.07"]), (101.0, 583.4, ["101", "583"]), (0, 25.5, ["0.0", "25.5"]),
     (2.0, 2.0, ["2.00000", "2.00000"]), (-0.011, 0.032, ["-0.0110", "0.0320"])],
)  # fmt: skip
def test_ends_of_the_ramp_have_the_same_places(low: float, high: float, shown: list[str]) -> None:
    assert _ends(low, high) == shown
