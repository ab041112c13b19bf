"""The readers account for every byte and say in one line what is wrong and where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sparse3d.data import Scan, ScanError, read_labels, read_scan, simulate
from sparse3d.data.simulate import Sensor

STREET = simulate(3, Sensor(beams=32, azimuths=512)).points


def written(folder: Path, data: bytes | np.ndarray, name: str = "scan.bin") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.tobytes())
    return path


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(ScanError) as caught:
        read_scan(path, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


def test_what_was_written_is_read(tmp_path: Path) -> None:
    scan = read_scan(written(tmp_path, STREET))
    assert isinstance(scan, Scan)
    np.testing.assert_array_equal(scan.points, STREET)
    np.testing.assert_array_equal(scan.rows, np.arange(len(STREET)))
    assert (scan.total, scan.dropped, scan.notes) == (len(STREET), 0, ())


def test_negative_coordinates_are_ordinary(tmp_path: Path) -> None:
    mirrored = STREET * np.array([-1, -1, -1, 1], np.float32)
    np.testing.assert_array_equal(read_scan(written(tmp_path, mirrored)).points, mirrored)


@pytest.mark.parametrize("cut", [1, 4, 7, 15])
def test_cut_off(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, STREET[:100].tobytes()[:-cut])
    message = refusal(path)
    assert "multiple of 16 bytes" in message
    assert f"got {1600 - cut} bytes" in message
    assert "byte 1584" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", range(4))
def test_values_that_are_no_numbers(tmp_path: Path, value: float, column: int) -> None:
    points = STREET[:100].copy()
    points[37, column] = value
    points[90, 0] = np.nan
    path = written(tmp_path, points)
    message = refusal(path)
    name = ("x", "y", "z", "remission")[column]
    assert f"{name} of point 37 (byte {37 * 16 + column * 4}) must be finite" in message
    assert "2 of 100 points" in message
    assert "--drop-invalid" in message
    scan = read_scan(path, drop_invalid=True)
    assert (scan.total, scan.dropped, len(scan.points)) == (100, 2, 98)
    assert 37 not in scan.rows
    assert "dropped 2 of 100 points" in scan.notes[0]


def test_a_few_coordinates_beyond_the_limit_can_be_dropped(tmp_path: Path) -> None:
    points = STREET[:100].copy()
    points[5, 0] = np.nan
    points[[7, 20, 30], 1] = 3e38
    points[20, 3] = -np.inf
    path = written(tmp_path, points)
    message = refusal(path)
    assert "y of point 7 (byte 116) must lie in" in message
    assert "drop such points with --drop-invalid" in message
    scan = read_scan(path, drop_invalid=True)
    np.testing.assert_array_equal(scan.points, np.delete(STREET[:100], [5, 7, 20, 30], axis=0))
    words = "dropped 4 of 100 points (2 with NaN or infinite values, 2 with a coordinate beyond"
    assert words in scan.notes[0]


def test_dropping_does_not_excuse_another_format(tmp_path: Path) -> None:
    points = STREET[:100].copy()
    points[:11, 1] = 3e9
    message = refusal(written(tmp_path, points), drop_invalid=True)
    assert "y of point 0 (byte 4)" in message
    assert "--drop-invalid" not in message
    points = STREET[:100].copy()
    points[3, 3] = 7  # a scale, not a bad return
    assert "remission of point 3" in refusal(written(tmp_path, points), drop_invalid=True)


def test_any_size_gets_the_layout_that_fits(tmp_path: Path) -> None:
    """Row sizes divide a file that is no multiple of 16 as well."""
    xyz = STREET[:4999, :3]
    assert xyz.nbytes % 16
    message = refusal(written(tmp_path, xyz.astype("<f4")))
    assert "multiple of 16 bytes" in message
    assert "(--layout xyz, in Python read_points with layout='xyz')" in message
    ring = np.arange(499, dtype=np.float32)[:, None] % 32
    nuscenes = np.concatenate([STREET[:499, :3], np.floor(STREET[:499, 3:] * 255), ring], 1)
    assert "(--layout nuscenes," in refusal(written(tmp_path, nuscenes.astype("<f4")))
    color = np.floor(STREET[:501, 3:] * 255).repeat(3, 1)
    indoor = np.concatenate([STREET[:501, :3], color], 1)
    assert "--layout xyzrgb" in refusal(written(tmp_path, indoor.astype("<f4")))
    assert "3 float64 columns" in refusal(written(tmp_path, STREET[:99, :3].astype("<f8")))
    cut = refusal(written(tmp_path, STREET[:1000].tobytes()[:-4]))  # 3 columns divide it
    assert "the file is cut off" in cut


def test_every_layout_that_fits_is_named_the_likeliest_first(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    cube = rng.uniform(0, 20, (500, 3)).astype("<f4")
    assert "--layout xyz or --layout xyzrgb" in refusal(written(tmp_path, cube))
    unit = rng.uniform(0, 1, (501, 3)).astype("<f4")
    assert "(--layout xyz," in refusal(written(tmp_path, unit))
    color = rng.integers(0, 256, (500, 3))
    room = np.concatenate([cube, color], 1).astype("<f4")
    assert "(--layout xyzrgb" in refusal(written(tmp_path, room))
    small = np.concatenate([cube, rng.uniform(0, 1, (500, 3))], 1).astype("<f4")
    assert "(--layout xyzrgb" in refusal(written(tmp_path, small))


def test_limits_can_be_named(tmp_path: Path) -> None:
    points = STREET[:100].copy()
    points[:, 3] *= 255
    points[3, 0] = 1500
    path = written(tmp_path, points)
    assert "x of point 3 (byte 48)" in refusal(path, max_remission=255)
    assert "max_remission" in refusal(path, max_coordinate=2000)
    assert len(read_scan(path, max_coordinate=2000, max_remission=255).points) == 100


def test_other_layouts_are_refused_and_named(tmp_path: Path) -> None:
    n = len(STREET) // 16 * 16
    cloud = STREET[:n]
    ring = np.arange(n, dtype=np.float32)[:, None] % 32
    nuscenes = np.concatenate([cloud[:, :3], np.floor(cloud[:, 3:] * 255), ring], 1)
    assert "nuScenes" in refusal(written(tmp_path, nuscenes.astype("<f4")))
    assert "3 float32 columns" in refusal(written(tmp_path, cloud[:, :3].astype("<f4")))
    assert "big-endian" in refusal(written(tmp_path, cloud.astype(">f4")))
    assert "4 float64 columns" in refusal(written(tmp_path, cloud.astype("<f8")))
    color = np.floor(cloud[:, 3:] * 255).repeat(3, 1)
    indoor = np.concatenate([cloud[:, :3], color], 1).astype("<f4")
    assert "must lie in" in refusal(written(tmp_path, indoor))
    noise = np.random.default_rng(0).bytes(16 * 100)
    assert refusal(written(tmp_path, noise))


def test_empty_and_single(tmp_path: Path) -> None:
    scan = read_scan(written(tmp_path, b""))
    assert scan.points.shape == (0, 4)
    assert "empty" in scan.notes[0]
    assert len(read_scan(written(tmp_path, STREET[:1])).points) == 1


def test_no_return_markers_are_noted(tmp_path: Path) -> None:
    points = STREET[:50].copy()
    points[10:13, :3] = 0
    assert "3 points lie exactly at (0, 0, 0)" in read_scan(written(tmp_path, points)).notes[0]


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refusal(tmp_path / "absent.bin")
    assert "must be a file, got a folder" in refusal(tmp_path)


def test_labels(tmp_path: Path) -> None:
    labels = np.array([0, 40, 70 | 5 << 16, 2**32 - 1], np.uint32)
    path = written(tmp_path, labels, "scan.label")
    np.testing.assert_array_equal(read_labels(path, 4), labels)
    with pytest.raises(ScanError, match=r"3 points, got 4: 1 too many from label 3 \(byte 12\)"):
        read_labels(path, 3)
    with pytest.raises(ScanError, match=r"5 points, got 4: 1 missing from label 4 \(byte 16\)"):
        read_labels(path, 5)
    written(tmp_path, labels.tobytes()[:-1], "scan.label")
    with pytest.raises(ScanError, match=r"multiple of 4 bytes.*got 15.*label 2 \(byte 12\)"):
        read_labels(path)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("derived_truncated_7bytes", "got 31993 bytes"),
        ("derived_truncated_4bytes", "got 31996 bytes"),
        ("derived_nan_xyz", "20 of 2000 points"),
        ("derived_inf_and_nan_intensity", "must be finite"),
        ("derived_huge_coords", "must lie in [-1000, 1000] m"),
        ("derived_huge_coords", "--drop-invalid"),
    ],
)
def test_malformed(shared: Path, name: str, words: str) -> None:
    assert words in refusal(shared / "data" / "malformed" / f"{name}.bin")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "count"), [("ok_2000", 2000), ("one_point", 1), ("all_same_point", 2000), ("empty", 0)]
)
def test_odd_but_legal(shared: Path, name: str, count: int) -> None:
    assert len(read_scan(shared / "data" / "malformed" / f"derived_{name}.bin").points) == count


@pytest.mark.data
def test_short_label_file(shared: Path) -> None:
    with pytest.raises(ScanError, match="1 missing"):
        read_labels(shared / "data" / "malformed" / "derived_label_one_short.label", 2000)


@pytest.mark.data
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("lidar/nuscenes_n015_1532402927647951.pcd.bin", "nuScenes"),
        ("lidar/nclt_1326652795280148.bin", "must"),
        ("indoor/scannet_scene0000_00_xyzrgb.bin", "must lie in"),
        ("indoor/sunrgbd_000017_xyzrgb.bin", "must lie in"),
        ("formats/scannet_100pts_points.bin", "must lie in"),
    ],
)
def test_other_data_sets_are_not_misread(shared: Path, path: str, words: str) -> None:
    assert words in refusal(shared / "data" / path)


@pytest.mark.data
def test_real_frames(shared: Path) -> None:
    lidar = shared / "data" / "lidar"
    for path in sorted(lidar.glob("kitti_*.bin")):
        scan = read_scan(path)
        assert scan.notes == ()
        assert len(scan.points) * 16 == path.stat().st_size
    assert len(read_labels(lidar / "kitti_spvnas_000000.label", 123_389)) == 123_389
