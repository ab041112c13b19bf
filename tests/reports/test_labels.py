"""Reports about labels and submissions: rows 38 and 40."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from sparse3d.data import LABEL_MAPS, ScanError, read_labels, read_scan, write_labels
from sparse3d.data.config import load_config
from sparse3d.data.files import write_scan
from sparse3d.data.segment import Segmenter, build, write_results

OFFICIAL = LABEL_MAPS["official"]


def test_row_38_instances_do_not_reach_the_class_map(tmp_path: Path) -> None:
    raw = np.array([131076, 0x0001000A, 252, 99], "<u4")
    path = tmp_path / "a.label"
    path.write_bytes(raw.tobytes())
    labels = read_labels(path, 4)
    assert (labels & 0xFFFF).tolist() == [4, 10, 252, 99]
    assert (labels >> 16).tolist() == [2, 1, 0, 0]
    assert OFFICIAL.to_train(labels[1:]).tolist() == [1, 1, 0]  # car, moving car, ignored
    with pytest.raises(ValueError, match=r"raw ids of the official map, got 4 at point 0; pass"):
        OFFICIAL.to_train(labels)  # class 4 is no raw id: named, never another class
    assert OFFICIAL.to_train(labels, unknown="ignore").tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("name", LABEL_MAPS)
def test_row_38_every_class_under_every_instance(name: str, dtype: type) -> None:
    table = LABEL_MAPS[name]
    raw = np.array(list(table.forward), np.int64)
    wanted = list(table.forward.values())
    for instance in (0, 1, 2, 0x7FFF, 0xFFFF):
        packed = (raw | instance << 16).astype(np.uint32).view(np.int32)
        given = packed if dtype is np.int32 else packed.view(np.uint32).astype(dtype)
        assert table.to_train(given).tolist() == wanted


@pytest.mark.parametrize("count", [3, 5])
def test_row_38_length_of_the_scan(tmp_path: Path, count: int) -> None:
    path = tmp_path / "a.label"
    write_labels(path, np.full(4, 10, np.uint32))
    with pytest.raises(ScanError, match=rf"one label for each of the scan's {count} points, got 4"):
        read_labels(path, count)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ScanError, match="multiple of 4 bytes"):
        read_labels(path)


def _ten_points() -> np.ndarray:
    """Points 3 and 7 share a voxel; 0, 5 and 9 are far beyond the usual 51.2 m range."""
    points = np.zeros((10, 4), np.float32)
    points[:, 0] = np.linspace(3, 12, 10)
    points[:, 1] = [1.0, -2, 3, -4, 5, -6, 7, -4, 2, 0]
    points[7, :3] = points[3, :3]
    points[[0, 5, 9], 0] = (180.0, -240.0, 999.0)
    points[:, 3] = 0.5
    return points


@pytest.fixture(scope="module")
def segmenter() -> Segmenter:
    """A small network with all 19 official classes, weights as they fall."""
    torch.manual_seed(0)
    config = load_config("demo")
    classes = OFFICIAL.inverse[1:]
    model = {**config.model, "num_classes": 19}
    config = type(config)(**{**config.__dict__, "classes": classes, "model": model})
    return Segmenter(config, build(config), torch.device("cpu"))


def test_row_40_a_label_for_every_point_in_scan_order(
    engine: str, tmp_path: Path, segmenter: Segmenter
) -> None:
    write_scan(tmp_path / "a.bin", _ten_points())
    scan = read_scan(tmp_path / "a.bin")
    labels = segmenter.label(scan)
    assert labels.dtype == np.uint32
    assert labels.shape == (10,)
    assert set(labels.tolist()) <= set(OFFICIAL.inverse[1:])  # far points have classes too
    assert labels[3] == labels[7]
    write_results(tmp_path / "out", "a", scan, labels, "ten points")
    assert (tmp_path / "out" / "a.label").stat().st_size == 40
    assert read_labels(tmp_path / "out" / "a.label", 10).tolist() == labels.tolist()
    order = np.random.default_rng(0).permutation(10)
    write_scan(tmp_path / "b.bin", _ten_points()[order])
    assert (segmenter.label(read_scan(tmp_path / "b.bin")) == labels[order]).all()


def test_row_40_points_left_out_are_unlabeled_in_their_place(
    engine: str, tmp_path: Path, segmenter: Segmenter
) -> None:
    points = _ten_points()
    points[[2, 8], 1] = np.nan
    (tmp_path / "a.bin").write_bytes(points.astype("<f4").tobytes())
    scan = read_scan(tmp_path / "a.bin", drop_invalid=True)
    labels = segmenter.label(scan)
    assert labels.shape == (10,)
    assert np.flatnonzero(labels == 0).tolist() == [2, 8]


def test_row_40_the_inverse_map() -> None:
    raw = [0, 10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81]
    for table in LABEL_MAPS.values():
        written = table.to_raw(np.arange(20))
        assert written.dtype == np.uint32
        assert written.tolist() == raw
    assert OFFICIAL.to_train(OFFICIAL.to_raw(np.arange(20))).tolist() == list(range(20))
    for bad in (-1, 20, 255):
        with pytest.raises(ValueError, match=r"train must lie in \[0, 19\]"):
            OFFICIAL.to_raw(np.array([1, bad]))
