"""SemanticKITTI's folders as a data set: splits, labels, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kitti_folder import SENSOR, make_kitti
from torch.utils.data import DataLoader

from sparse3d.data import ScanError, simulate
from sparse3d.data.dataset import SCAN_COUNTS, SPLITS, SemanticKITTI
from sparse3d.data.semantic_kitti import LABEL_MAPS, conflicts


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kitti(tmp_path_factory.mktemp("kitti"), {0: 2, 8: 3})


def test_the_official_splits() -> None:
    sums = {name: sum(SCAN_COUNTS[s] for s in split) for name, split in SPLITS.items()}
    assert sums == {"train": 19130, "val": 4071, "test": 20351}
    assert sorted(s for split in SPLITS.values() for s in split) == list(range(22))


def test_scans_come_in_order_with_their_labels(root: Path) -> None:
    data = SemanticKITTI(root, "val")
    assert [frame.name for frame in data.frames] == ["08/000000", "08/000001", "08/000002"]
    street = simulate(802, SENSOR)
    sample = data[2]
    assert sample.name == "08/000002"
    np.testing.assert_array_equal(sample.points, street.points)
    np.testing.assert_array_equal(sample.labels, street.labels)
    assert data.notes == (
        "sequence 08 holds 3 scans, the benchmark's 4071: "
        "the numbers are not those of the official split",
    )
    assert SemanticKITTI(root, "val", labels=False)[0].labels is None


def test_workers_read_it(root: Path) -> None:
    data = SemanticKITTI(root, sequences=[0, 8])
    loader = DataLoader(data, batch_size=2, num_workers=2, collate_fn=list)
    names = [sample.name for batch in loader for sample in batch]
    assert names == ["00/000000", "00/000001", "08/000000", "08/000001", "08/000002"]


def test_the_folder_may_be_named_from_three_places(root: Path, tmp_path: Path) -> None:
    (tmp_path / "dataset").symlink_to(root)
    for place in (root, root / "sequences", tmp_path):
        assert len(SemanticKITTI(place, "val")) == 3


def test_what_is_missing_is_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be SemanticKITTI's folder, got nothing"):
        SemanticKITTI(tmp_path / "gone")
    with pytest.raises(ValueError, match="must hold the folder sequences, got none"):
        SemanticKITTI(tmp_path)
    with pytest.raises(
        ValueError, match=r"01/velodyne: must be there .* got sequences \['00', '08'\]"
    ):
        SemanticKITTI(root, "train")
    with pytest.raises(ValueError, match="split must be one of"):
        SemanticKITTI(root, "valid")
    with pytest.raises(ValueError, match="sequences must be different numbers from 0 to 21"):
        SemanticKITTI(root, sequences=[8, 8])
    (tmp_path / "sequences" / "08" / "velodyne").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"without \.bin files"):
        SemanticKITTI(tmp_path)
    (tmp_path / "sequences" / "08" / "velodyne" / "a.bin").touch()
    with pytest.raises(ScanError, match="must be named by six digits"):
        SemanticKITTI(tmp_path)


def test_a_scan_without_labels_is_an_error(tmp_path: Path) -> None:
    data = SemanticKITTI(make_kitti(tmp_path, {8: 1}, labels=False))
    with pytest.raises(ScanError, match=r"labels/000000\.label: cannot be read"):
        data[0]


def test_dropped_points_take_their_labels_along(tmp_path: Path) -> None:
    make_kitti(tmp_path, {8: 1})
    path = tmp_path / "sequences" / "08" / "velodyne" / "000000.bin"
    points = np.fromfile(path, "<f4").reshape(-1, 4)
    points[5, 0] = np.nan
    points.tofile(path)
    sample = SemanticKITTI(tmp_path, drop_invalid=True)[0]
    labels = simulate(800, SENSOR).labels
    np.testing.assert_array_equal(sample.labels, np.delete(labels, 5))
    np.testing.assert_array_equal(sample.file_labels, labels)


def test_where_the_maps_of_two_repositories_differ() -> None:
    assert conflicts("official", "spvnas") == {
        13: ("other-vehicle", "ignored"),
        16: ("other-vehicle", "ignored"),
        60: ("road", "ignored"),
        256: ("other-vehicle", "ignored"),
        257: ("other-vehicle", "ignored"),
    }
    assert conflicts("official", "official") == {}
    with pytest.raises(ValueError, match="second must be one of"):
        conflicts("official", "mine")
    assert set(LABEL_MAPS) == {"official", "spvnas"}
