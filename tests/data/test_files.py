"""Files appear whole or not at all, and hold what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparse3d.data import colors_of, read_labels, read_scan, simulate, write_labels, write_ply
from sparse3d.data.files import atomic, write_scan
from sparse3d.data.semantic_kitti import COLORS, RAW_NAMES
from sparse3d.data.simulate import Sensor

STREET = simulate(3, Sensor(beams=32, azimuths=512))


def test_nothing_is_left_of_a_failed_write(tmp_path: Path) -> None:
    path = tmp_path / "out.label"
    path.write_bytes(b"old")

    def fail() -> None:
        with atomic(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.label"]
    with atomic(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["out.label"]


def test_labels_and_scans_come_back(tmp_path: Path) -> None:
    write_labels(tmp_path / "a.label", STREET.labels)
    write_scan(tmp_path / "a.bin", STREET.points)
    np.testing.assert_array_equal(read_labels(tmp_path / "a.label"), STREET.labels)
    np.testing.assert_array_equal(read_scan(tmp_path / "a.bin").points, STREET.points)
    with pytest.raises(TypeError, match="labels must be uint32"):
        write_labels(tmp_path / "b.label", STREET.labels.astype(np.int64))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"points must have shape \[N, 4\]"):
        write_scan(tmp_path / "b.bin", STREET.points[:, :3])
    assert not (tmp_path / "b.label").exists()


def test_ply(tmp_path: Path) -> None:
    path = tmp_path / "a.ply"
    colors = colors_of(STREET.labels)
    write_ply(path, STREET.points, colors, STREET.labels)
    head, _, body = path.read_bytes().partition(b"end_header\n")
    lines = head.decode("ascii").splitlines()
    assert lines[:2] == ["ply", "format binary_little_endian 1.0"]
    assert f"element vertex {len(colors)}" in lines
    assert [line.split()[1:] for line in lines if line.startswith("property")] == [
        ["float", "x"],
        ["float", "y"],
        ["float", "z"],
        ["uchar", "red"],
        ["uchar", "green"],
        ["uchar", "blue"],
        ["uint", "label"],
    ]
    rows = np.frombuffer(body, np.dtype("<f4,<f4,<f4,u1,u1,u1,<u4"))
    assert len(rows) == len(colors)
    np.testing.assert_array_equal(rows["f1"], STREET.points[:, 1])
    np.testing.assert_array_equal(rows["f4"], colors[:, 1])
    np.testing.assert_array_equal(rows["f6"], STREET.labels)
    write_ply(path, STREET.points[:0], colors[:0])
    assert b"element vertex 0" in path.read_bytes()
    with pytest.raises(ValueError, match="colors must have"):
        write_ply(path, STREET.points, colors[:-1])


def contrast(one: object, other: object) -> float:
    """Of two colours, from 1 to 21, as the web's guidelines count it."""
    colors = pytest.importorskip("matplotlib.colors")
    light = []
    for color in (one, other):
        parts = np.array(colors.to_rgb(color))
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        light.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(light) / min(light)


def test_every_class_is_legible_in_the_legend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Official colours may be dark as the page, or like another class's: words tell them apart."""
    pytest.importorskip("matplotlib")
    from sparse3d.data import picture

    made: list[picture.Figure] = []

    class Kept(picture.Figure):
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            made.append(self)

    monkeypatch.setattr(picture, "Figure", Kept)
    labels = np.array(list(COLORS), np.uint32)
    picture.write_picture(tmp_path / "a.png", STREET.points[: len(labels)], labels, "every class")
    legend, page = made[0].legends[0], made[0].get_facecolor()
    words = {text.get_text().split("  ")[0]: text for text in legend.get_texts()}
    assert set(words) == set(RAW_NAMES.values())
    for text in (*words.values(), legend.get_title()):
        assert contrast(text.get_color(), page) > 7
    assert not legend.get_frame_on()  # the words lie on the page
    shades = {handle.get_color() for handle in legend.legend_handles}
    assert min(contrast(shade, page) for shade in shades) < 3  # so each has a light rim
    for handle in legend.legend_handles:
        assert handle.get_markeredgewidth() > 0.5
        assert contrast(handle.get_markeredgecolor(), page) > 7


@pytest.mark.parametrize("count", [0, 1, None])
def test_picture(tmp_path: Path, count: int | None) -> None:
    image = pytest.importorskip("matplotlib.image")
    from sparse3d.data.picture import write_picture

    path = tmp_path / "a.png"
    write_picture(path, STREET.points[:count], STREET.labels[:count], "a street")
    pixels = image.imread(path)[..., :3]
    assert pixels.shape[0] > 700
    road = np.abs(pixels - np.array([1, 0, 1])).max(-1) < 0.02
    assert road.sum() > (2000 if count is None else 0) or count is not None
