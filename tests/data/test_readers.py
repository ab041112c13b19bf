"""One call reads every format; what a header promises is checked before anything is allocated."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sparse3d.data import PointCloud, ScanError, read_points, write_ply, write_scan
from sparse3d.data.readers import ENDINGS, scans_in, stem_of

pytest.importorskip("pypcd4")
laspy = pytest.importorskip("laspy")

RNG = np.random.default_rng(8)
XYZ = RNG.uniform(-40, 40, (300, 3)).astype(np.float32)
GREY = RNG.integers(0, 256, 300)


def refusal(path: Path, **options: object) -> str:
    with pytest.raises(ScanError) as caught:
        read_points(path, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


# ---- what was written is read


def pcd_header(data: str, count: int = 300, fields: str = "x y z intensity ring") -> bytes:
    names = fields.split()
    sizes = {"intensity": "1", "ring": "2"}
    kinds = {"intensity": "U", "ring": "U"}
    return (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\n"
        f"FIELDS {fields}\nSIZE {' '.join(sizes.get(n, '4') for n in names)}\n"
        f"TYPE {' '.join(kinds.get(n, 'F') for n in names)}\nCOUNT {' '.join('1' for _ in names)}\n"
        f"WIDTH {count}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {count}\nDATA {data}\n"
    ).encode()


def pcd_rows() -> np.ndarray:
    kinds = [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "u1"), ("ring", "<u2")]
    rows = np.zeros(300, kinds)
    for axis in range(3):
        rows["xyz"[axis]] = XYZ[:, axis]
    rows["intensity"], rows["ring"] = GREY, np.arange(300)
    return rows


def make_pcd_ascii(folder: Path) -> Path:
    lines = [" ".join(repr(value.item()) for value in row) for row in pcd_rows()]
    text = "\r\n".join(line.replace(" ", " \t ") for line in lines)
    return written(folder / "a.pcd", pcd_header("ascii") + text.encode())


def make_pcd_binary(folder: Path) -> Path:
    return written(folder / "b.pcd", pcd_header("binary") + pcd_rows().tobytes())


def make_pcd_compressed(folder: Path) -> Path:
    """All literal runs: the plainest stream that is valid LZF."""
    rows = pcd_rows()
    body = b"".join(rows[name].tobytes() for name in rows.dtype.names)
    packed = b"".join(bytes([len(body[i : i + 32]) - 1]) + body[i : i + 32]
                      for i in range(0, len(body), 32))  # fmt: skip
    sizes = struct.pack("<II", len(packed), len(body))
    return written(folder / "c.PCD", pcd_header("binary_compressed") + sizes + packed)


def make_ply(order: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        sign = ">" if "big" in order else "<"
        head = f"ply\nformat {order} 1.0\ncomment x\nelement sensor 1\nproperty double height\n"
        head += "element vertex 300\nproperty float x\nproperty float y\nproperty float z\n"
        head += "property uchar intensity\nelement face 1\nproperty list uchar int vertex_indices\n"
        kinds = [("x", sign + "f4"), ("y", sign + "f4"), ("z", sign + "f4"), ("i", "u1")]
        rows = np.zeros(300, kinds)
        for axis in range(3):
            rows["xyz"[axis]] = XYZ[:, axis]
        rows["i"] = GREY
        if order == "ascii":
            body = "1.8\n" + "".join(" ".join(repr(v.item()) for v in row) + "\n" for row in rows)
            body = (body + "3 0 1 2\n").encode()
        else:
            body = np.array([1.8], sign + "f8").tobytes() + rows.tobytes()
            body += b"\3" + np.arange(3, dtype=sign + "i4").tobytes()
        return written(folder / f"{order}.ply", head.encode() + b"end_header\n" + body)

    return make


def make_ply_lists(order: str) -> Callable[[Path], Path]:
    """Lists of many lengths before the vertices and in them: all are stepped over."""

    def make(folder: Path) -> Path:
        sign = ">" if "big" in order else "<"
        head = f"ply\nformat {order} 1.0\nelement face 3\nproperty list int8 double weights\n"
        head += "property short kind\nelement vertex 300\nproperty list uint16 uchar seen\n"
        head += "property float x\nproperty float y\nproperty list uchar int near\n"
        head += "property float z\nproperty uchar intensity\n"
        lengths = RNG.integers(0, 4, (300, 2))
        if order == "ascii":
            body = "2 .5 1e3 -7\n0 1\n1 nan 2\n"
            for (x, y, z), grey, (one, two) in zip(XYZ.tolist(), GREY, lengths, strict=True):
                body += f"{one}{' 9' * one} {x!r} {y!r} {two}{' -8' * two} {z!r} {grey}\n"
            return written(folder / f"lists {order}.ply", f"{head}end_header\n{body}".encode())
        data = b""
        for length, kind in ((2, -7), (0, 1), (1, 2)):
            data += bytes([length]) + np.full(length, 0.5, sign + "f8").tobytes()
            data += np.array([kind], sign + "i2").tobytes()
        for point, grey, (one, two) in zip(XYZ, GREY, lengths, strict=True):
            data += np.array([one], sign + "u2").tobytes() + bytes([9] * one)
            data += point[:2].astype(sign + "f4").tobytes()
            data += bytes([two]) + np.full(two, -8, sign + "i4").tobytes()
            data += point[2:].astype(sign + "f4").tobytes() + bytes([grey])
        return written(folder / f"lists {order}.ply", head.encode() + b"end_header\n" + data)

    return make


def make_las(ending: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        header = laspy.LasHeader(point_format=3, version="1.2")
        header.scales, header.offsets = [1e-7] * 3, [0, 0, 0]
        cloud = laspy.LasData(header)
        cloud.x, cloud.y, cloud.z = XYZ.astype(np.float64).T
        cloud.intensity = GREY
        cloud.write(folder / f"a{ending}")
        return folder / f"a{ending}"

    return make


def make_npy(folder: Path) -> Path:
    np.save(folder / "a.npy", np.concatenate([XYZ, GREY[:, None]], 1).astype(np.float32))
    return folder / "a.npy"


def make_npz(folder: Path) -> Path:
    np.savez_compressed(folder / "a.npz", points=XYZ, intensity=GREY.astype(np.uint8), about="x")
    return folder / "a.npz"


def make_nuscenes(folder: Path) -> Path:
    table = np.concatenate([XYZ, GREY[:, None], np.arange(300)[:, None] % 32], 1)
    return written(folder / "a.pcd.bin", table.astype("<f4").tobytes())


MAKERS = {
    "pcd ascii": make_pcd_ascii,
    "pcd binary": make_pcd_binary,
    "pcd compressed": make_pcd_compressed,
    "ply ascii": make_ply("ascii"),
    "ply little": make_ply("binary_little_endian"),
    "ply big": make_ply("binary_big_endian"),
    "ply lists ascii": make_ply_lists("ascii"),
    "ply lists little": make_ply_lists("binary_little_endian"),
    "ply lists big": make_ply_lists("binary_big_endian"),
    "las": make_las(".las"),
    "laz": make_las(".laz"),
    "npy": make_npy,
    "npz": make_npz,
    "nuscenes": make_nuscenes,
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_was_written_is_read(tmp_path: Path, name: str) -> None:
    path = MAKERS[name](tmp_path)
    cloud = read_points(path)
    assert isinstance(cloud, PointCloud)
    assert (cloud.path, len(cloud), cloud.total, cloud.dropped) == (path, 300, 300, 0)
    wanted = np.float64 if name in ("las", "laz") else np.float32
    assert cloud.points.dtype == wanted
    np.testing.assert_allclose(cloud.points, XYZ, rtol=0, atol=1e-7 if wanted == np.float64 else 0)
    grey = cloud.attributes["column_3" if name == "npy" else "intensity"]
    np.testing.assert_array_equal(grey, GREY)
    scan = cloud.scan()
    assert scan.points.dtype == np.float32
    if name != "npy":
        np.testing.assert_allclose(scan.points[:, 3], np.float32(GREY / 255), rtol=1e-6)


PLY_ERRORS = {
    "ply negative list": (b"-1 0 0 0\n", "property list char int near\n", "at least 0, got -1"),
    "ply short list": (
        b"9 7 7\n7 7\n",
        "property list char int near\n",
        "near of 9 numbers ends",
    ),
    "ply word": (b"0 0 zero\n", "", "could not convert string 'zero'"),
    "ply word for a length": (b"x 0 0 0\n", "property list char int near\n", "invalid literal"),
    "ply long line": (b"0 0 0 0\n", "", "requires 3 columns but 4 were found"),
    "ply blank line": (b"      \n", "", "a row is an empty line"),
}


@pytest.mark.parametrize("name", PLY_ERRORS)
def test_damaged_lines_of_text_are_refused(tmp_path: Path, name: str) -> None:
    body, more, words = PLY_ERRORS[name]
    head = f"ply\nformat ascii 1.0\nelement vertex 1\n{more}property float x\nproperty float y\n"
    path = written(tmp_path / "a.ply", f"{head}property float z\nend_header\n".encode() + body)
    assert words in refusal(path)


def test_a_negative_length_of_a_binary_list_is_refused(tmp_path: Path) -> None:
    head = b"ply\nformat binary_big_endian 1.0\nelement face 1\nproperty list int8 int8 a\n"
    head += b"element vertex 1\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
    path = written(tmp_path / "a.ply", head + b"\xff" + bytes(12))
    assert "list a must have a length of at least 0, got -1" in refusal(path)


# A letter less of text is another number; faces after the vertices are not read.
CUTS = [(name, 1) for name in MAKERS if not name.startswith("ply") and name != "pcd ascii"]


@pytest.mark.parametrize(("name", "cut"), [*CUTS, *((name, 701) for name in MAKERS)])
def test_cut_off_files_are_refused(tmp_path: Path, name: str, cut: int) -> None:
    path = MAKERS[name](tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    refusal(path)


def test_our_own_ply_comes_back_with_labels_and_colours(tmp_path: Path) -> None:
    colors = RNG.integers(0, 256, (300, 3)).astype(np.uint8)
    write_ply(tmp_path / "a.ply", XYZ, colors, GREY.astype(np.uint32))
    cloud = read_points(tmp_path / "a.ply")
    np.testing.assert_array_equal(cloud.colors(), colors)
    np.testing.assert_array_equal(cloud.classes(), GREY)
    assert cloud.intensity() is None
    assert "has no intensity" in cloud.scan().notes[-1]


def test_map_coordinates_keep_their_precision(tmp_path: Path) -> None:
    far = XYZ.astype(np.float64) + np.array([512_700.0, 5_403_547.0, 300.0])
    np.save(tmp_path / "far.npy", far)
    cloud = read_points(tmp_path / "far.npy")
    points, offset = cloud.local()
    assert points.dtype == np.float32
    np.testing.assert_allclose(points.astype(np.float64) + offset, far, rtol=0, atol=1e-5)
    assert "coordinates are taken from" in cloud.scan().notes[0]
    np.save(tmp_path / "coarse.npy", far.astype(np.float32))
    assert "lie 0.5 apart" in read_points(tmp_path / "coarse.npy").notes[0]
    np.testing.assert_array_equal(read_points(make_npy(tmp_path)).local()[1], 0)


def test_columns_of_a_table_without_header_can_be_named(tmp_path: Path) -> None:
    table = np.concatenate([XYZ, GREY[:, None], GREY[:, None], GREY[:, None]], 1).astype("<f4")
    path = written(tmp_path / "room.bin", table.tobytes())
    assert "--layout xyzrgb" in refusal(path)
    cloud = read_points(path, layout="xyzrgb")
    np.testing.assert_array_equal(cloud.points, XYZ)
    np.testing.assert_array_equal(cloud.colors(), np.stack([GREY] * 3, 1))
    assert "layout must be one of" in refusal(path, layout="other")
    assert "layout must be left out" in refusal(make_npy(tmp_path), layout="xyz")
    assert "multiple of 20 bytes" in refusal(written(tmp_path / "a.pcd.bin", bytes(19)))
    write_scan(tmp_path / "kitti.pcd.bin", np.concatenate([XYZ, XYZ[:, :1] * 0 + 0.5], 1))
    assert "must be" in refusal(tmp_path / "kitti.pcd.bin")


def test_points_that_are_no_numbers(tmp_path: Path) -> None:
    table = XYZ.copy()
    table[7, 1], table[9, 0] = np.nan, np.inf
    np.save(tmp_path / "a.npy", table)
    message = refusal(tmp_path / "a.npy")
    assert "y of point 7 must be finite, got nan (2 of 300 points affected)" in message
    cloud = read_points(tmp_path / "a.npy", drop_invalid=True)
    assert (len(cloud), cloud.total, cloud.dropped) == (298, 300, 2)
    assert not {7, 9} & set(cloud.rows)
    assert "left out 2 of 300" in cloud.notes[0]
    np.save(tmp_path / "b.npy", table * np.nan)
    assert "at least one finite point" in refusal(tmp_path / "b.npy", drop_invalid=True)


@pytest.mark.parametrize("value", [3e30, -1e300])
def test_coordinates_that_no_map_has(tmp_path: Path, value: float) -> None:
    table = XYZ.astype(np.float64)
    table[11, 2] = value
    np.save(tmp_path / "a.npy", table)
    message = refusal(tmp_path / "a.npy")
    assert f"z of point 11 must lie in [-1e+12, 1e+12], got {value:g} (1 of 300" in message
    assert "--drop-invalid" in message
    cloud = read_points(tmp_path / "a.npy", drop_invalid=True)
    assert 11 not in cloud.rows
    assert (len(cloud), cloud.total) == (299, 300)
    assert "left out 1 of 300 points with a coordinate beyond 1e+12" in cloud.notes[0]
    table[:31, 0] = value
    np.save(tmp_path / "b.npy", table)
    assert "another layout" in refusal(tmp_path / "b.npy", drop_invalid=True)


def test_outliers_of_a_table_without_header(tmp_path: Path) -> None:
    table = XYZ.astype("<f4")
    table[[3, 7], 1] = 3e38, np.nan
    path = written(tmp_path / "a.bin", table.tobytes())
    assert "--drop-invalid" in refusal(path, layout="xyz")
    cloud = read_points(path, layout="xyz", drop_invalid=True)
    np.testing.assert_array_equal(cloud.points, np.delete(XYZ, [3, 7], axis=0))
    words = "1 of 300 points without finite coordinates and 1 of 300 points with a coordinate"
    assert words in cloud.notes[0]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("count", [300, 304, 305])
def test_distances_of_huge_values_have_a_median(tmp_path: Path, count: int) -> None:
    values = np.tile(np.array([0, 3.2e38], "<f4"), count // 2)
    path = written(tmp_path / "a.bin", values.tobytes() + bytes(4 * (count % 2)))
    assert str(path) in refusal(path)


def test_integers_are_not_read_as_floats(tmp_path: Path) -> None:
    path = written(tmp_path / "mask.bin", np.arange(100, dtype="<i8").tobytes())
    assert "must be 0 or a normal float32" in refusal(path)


def test_what_is_no_file_of_a_known_kind(tmp_path: Path) -> None:
    assert "must end in one of" in refusal(written(tmp_path / "a.txt", b"1 2 3"))
    assert "got a label file of 2 labels" in refusal(written(tmp_path / "a.label", bytes(8)))
    assert "cannot be read: No such file" in refusal(tmp_path / "absent.ply")
    (tmp_path / "folder.ply").mkdir()
    assert "must be a file, got a folder" in refusal(tmp_path / "folder.ply")


SIGNALS = np.array([0x7FA00001, 0xFFA00001, 0x7F800000, 0x7149F2CA], "<u4")
"""Bits of NaNs at which a processor raises its hand when they are converted, infinity, 1e30."""


def test_attributes_that_are_no_numbers(tmp_path: Path) -> None:
    """No warning of numpy's, and nothing that is not finite."""
    values = np.concatenate([np.zeros(4), np.arange(296)]).astype("<f4")
    values.view("<u4")[:3] = SIGNALS[:3]
    columns = dict.fromkeys(("intensity", "label", "red", "green", "blue"), values)
    np.savez(tmp_path / "a.npz", points=XYZ, **columns)
    cloud = read_points(tmp_path / "a.npz")
    grey, colors = cloud.intensity(), cloud.colors()
    assert grey is not None
    assert colors is not None
    assert grey[:4].tolist() == [0, 0, 0, 0]
    assert grey[-1] == np.float32(295 / 65535)
    assert colors[:4].tolist() == [[0] * 3] * 4
    assert colors[-1].tolist() == [1, 1, 1]  # 295 of 65,535
    assert cloud.classes() is None
    values[:3] = 1
    np.savez(tmp_path / "b.npz", points=XYZ, label=values)
    classes = read_points(tmp_path / "b.npz").classes()
    assert classes is not None
    assert classes.tolist() == values.tolist()
    values.view("<u4")[9] = SIGNALS[3]
    np.savez(tmp_path / "c.npz", points=XYZ, label=values)
    assert read_points(tmp_path / "c.npz").classes() is None
    words = np.full(300, "tree")
    np.savez(
        tmp_path / "d.npz", points=XYZ, label=words, intensity=words, r=words, g=words, b=words
    )
    cloud = read_points(tmp_path / "d.npz")
    assert (cloud.intensity(), cloud.classes(), cloud.colors()) == (None, None, None)
    assert "has no intensity" in cloud.scan().notes[-1]
    assert cloud.attributes["label"][0] == "tree"


FIELDS = np.zeros(4, [("x", "f4"), ("y", "f4"), ("n", "i4")])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": XYZ[:, 0], "y": XYZ[:, 1], "z": XYZ[:9, 2]},
         "x, y and z must have one length, got [9, 300]"),
        ({"faces": XYZ, "colours": XYZ},
         "must hold x, y and z, or one of points, xyz, pc, coord, pos, positions, point_cloud, "
         "vertices, got colours, faces; rename the array of points"),
        ({}, "vertices, got nothing; rename the array of points"),
        ({"points": FIELDS}, "points must be [N] with fields x, y, z, got ['x', 'y', 'n']"),
        ({"xyz": XYZ[:, :2]}, "xyz must have shape [N, >=3], got [300, 2]"),
        ({"pos": XYZ.ravel()}, "pos must have shape [N, >=3], got [900]"),
        ({"pc": XYZ.astype(complex)}, "pc must hold real numbers, got complex128"),
        ({"coord": XYZ > 0}, "coord must hold real numbers, got bool"),
    ],
)  # fmt: skip
def test_archives_of_arrays_that_are_no_points(
    tmp_path: Path, arrays: dict[str, np.ndarray], words: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    assert words in refusal(tmp_path / "a.npz")


def test_columns_of_an_archive_and_a_record_array(tmp_path: Path) -> None:
    named = dict(zip("xyz", XYZ.T, strict=True))
    np.savez(tmp_path / "a.npz", **named, grey=GREY, size=GREY[:7])
    table = np.zeros(len(XYZ), [(name, "f4") for name in "zyx"] + [("grey", "i8")])
    for name, column in named.items():
        table[name] = column
    table["grey"] = GREY
    np.save(tmp_path / "b.npy", table)
    for name in ("a.npz", "b.npy"):
        cloud = read_points(tmp_path / name)
        np.testing.assert_array_equal(cloud.points, XYZ)
        assert set(cloud.attributes) == {"grey"}  # what has another length is no column
        np.testing.assert_array_equal(cloud.attributes["grey"], GREY)


def test_headers_of_another_npy(tmp_path: Path) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, XYZ, version=(2, 0))
    np.testing.assert_array_equal(read_points(tmp_path / "a.npy").points, XYZ)
    with (tmp_path / "b.npy").open("wb") as file:
        np.lib.format.write_array(file, XYZ, version=(3, 0))
    assert "must have npy format 1 or 2, got (3, 0)" in refusal(tmp_path / "b.npy")


@pytest.mark.parametrize("ending", ENDINGS)
def test_noise_and_nothing_are_refused(tmp_path: Path, ending: str) -> None:
    refusal(written(tmp_path / f"a{ending}", RNG.bytes(4800)))
    refusal(written(tmp_path / f"b{ending}", b""))


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_pcd_binary(tmp_path)
    monkeypatch.setitem(sys.modules, "pypcd4", None)
    assert "needs pypcd4 to be read" in refusal(path)
    assert "[io]" in refusal(path)


def test_folders_and_names(tmp_path: Path) -> None:
    with pytest.raises(ScanError, match="must hold scans"):
        scans_in(tmp_path)
    with pytest.raises(ScanError, match="gone: cannot be read: No such file"):
        scans_in(tmp_path / "gone")
    for name in ("b.ply", "a.pcd", "a.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in scans_in(tmp_path)] == ["a.pcd", "b.ply"]
    (tmp_path / "c.bin").touch()
    assert [path.name for path in scans_in(tmp_path)] == ["c.bin"]
    assert stem_of(Path("x/a.b.pcd.bin")) == "a.b"
    assert stem_of(Path("x/a.PLY")) == "a"


# ---- headers that promise too much

HUGE = 4_000_000_000


def ply_promise(folder: Path, kind: str, element: str = "vertex") -> Path:
    head = f"ply\nformat {kind} 1.0\nelement vertex {HUGE if element == 'vertex' else 1}\n"
    head += "property float x\nproperty float y\nproperty float z\n"
    if element != "vertex":
        head += f"element {element} {HUGE}\nproperty list uint int vertex_indices\n"
    body = b"1 2 3\n" * 20 if kind == "ascii" else bytes(100)
    return written(folder / f"{kind}{element}.ply", head.encode() + b"end_header\n" + body)


def ply_long_list(folder: Path) -> Path:
    head = "ply\nformat binary_little_endian 1.0\nelement vertex 1\nproperty float x\n"
    head += "property float y\nproperty float z\nproperty list uint float more\nend_header\n"
    body = bytes(12) + struct.pack("<I", HUGE) + bytes(40)
    return written(folder / "list.ply", head.encode() + body)


def pcd_promise(folder: Path, kind: str) -> Path:
    return written(folder / f"{kind}.pcd", pcd_header(kind, HUGE) + bytes(200))


def pcd_unpacks_to_much(folder: Path) -> Path:
    body = struct.pack("<II", 100, 15 * 250_000_000) + bytes(100)
    return written(folder / "big.pcd", pcd_header("binary_compressed", 250_000_000) + body)


def patched(path: Path, at: int, value: bytes) -> Path:
    raw = bytearray(path.read_bytes())
    raw[at : at + len(value)] = value
    return written(path, bytes(raw))


def las_promise(folder: Path, ending: str) -> Path:
    return patched(make_las(ending)(folder), 107, struct.pack("<I", HUGE))


def las_many_records(folder: Path) -> Path:
    return patched(make_las(".las")(folder), 100, struct.pack("<I", HUGE))


def npy_promise(folder: Path) -> Path:
    raw = make_npy(folder).read_bytes()
    more = raw.replace(b"(300, 4), }" + b" " * 7, b"(4000000000, 4), }")
    assert len(more) == len(raw)
    assert more != raw
    return written(folder / "a.npy", more)


def npz_promise(folder: Path) -> Path:
    raw = npy_promise(folder).read_bytes()
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("points.npy", raw)
    return folder / "a.npz"


def npz_bomb(folder: Path) -> Path:
    file = io.BytesIO()
    np.save(file, np.zeros((3_000_000, 3)))
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("points.npy", file.getvalue())
    return folder / "a.npz"


def npz_pickle(folder: Path) -> Path:
    np.savez(folder / "a.npz", points=np.array([{}, {}, {}], object), allow_pickle=True)
    return folder / "a.npz"


def npy_pickle(folder: Path) -> Path:
    np.save(folder / "a.npy", np.array([{}, {}, {}], object), allow_pickle=True)
    return folder / "a.npy"


def laz_damaged(folder: Path, where: str, value: bytes) -> Path:
    """A number that the decoder would believe: it ends the process, or takes any memory."""
    path = make_las(".laz")(folder)
    raw = bytearray(path.read_bytes())
    (start,) = struct.unpack_from("<I", raw, 96)
    record = raw.find(b"laszip encoded") - 2 + 54
    (table,) = struct.unpack_from("<q", raw, start)
    places = {"items": record + 36, "chunks": table + 4, "table": start, "points": record + 12}
    at = places[where]
    raw[at : at + len(value)] = value
    path.write_bytes(raw)
    return path


PROMISES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "ply text": (lambda folder: ply_promise(folder, "ascii"), "must fit the file"),
    "ply binary": (lambda f: ply_promise(f, "binary_little_endian"), "must fit the file"),
    "ply faces": (lambda f: ply_promise(f, "binary_big_endian", "face"), "must fit the file"),
    "ply list": (ply_long_list, "more ends after the file"),
    "pcd text": (lambda folder: pcd_promise(folder, "ascii"), "must fit the file"),
    "pcd binary": (lambda folder: pcd_promise(folder, "binary"), "must fit the file"),
    "pcd compressed": (lambda f: pcd_promise(f, "binary_compressed"), "must unpack to"),
    "pcd unpacked": (pcd_unpacks_to_much, "must unpack to at most"),
    "las points": (lambda folder: las_promise(folder, ".las"), "must fit the file"),
    "laz points": (lambda folder: las_promise(folder, ".laz"), "must unpack to at most"),
    "laz items": (lambda f: laz_damaged(f, "items", b"\xff\x7f"), "add up to its 34 bytes"),
    "laz chunks": (lambda f: laz_damaged(f, "chunks", b"\xff" * 4), "4294967295 chunks must fit"),
    "laz chunk": (lambda f: laz_damaged(f, "points", b"\x50\xc3\0\xff"), "must unpack to at most"),
    "laz large chunk": (lambda f: laz_damaged(f, "points", b"\0\0\0\1"), "must unpack to at most"),
    "laz table": (lambda f: laz_damaged(f, "table", b"\x05" + b"\0" * 7), "table of chunks"),
    "las records": (las_many_records, "variable length records must end before"),
    "npy": (npy_promise, "cannot be read"),
    "npy objects": (npy_pickle, "got Python objects"),
    "npz": (npz_promise, "must hold 64000000000 bytes"),
    "npz bomb": (npz_bomb, "must unpack to at most"),
    "npz objects": (npz_pickle, "got Python objects"),
}


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_allocates_nothing(tmp_path: Path, name: str) -> None:
    make, words = PROMISES[name]
    path = make(tmp_path)
    size = path.stat().st_size
    refusal(path)  # what is imported on the first call does not count
    tracemalloc.start()
    try:
        message = refusal(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert words in message
    assert peak <= 4 * size + 2**17, f"{peak} bytes for a file of {size}"


def test_chunks_of_many_points_by_the_table_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_las(".laz")(tmp_path)
    lazrs = pytest.importorskip("lazrs")
    assert len(read_points(path)) == 300
    monkeypatch.setattr(lazrs, "read_chunk_table", lambda *_: [(300, 50), (2**31, 8)])
    assert "must unpack to at most" in refusal(path)


# ---- the shared files

REFUSED = {
    "formats/scannet_100pts_instance_mask.bin": "must be 0 or a normal float32",
    "formats/scannet_100pts_semantic_mask.bin": "must be 0 or a normal float32",
    "formats/scannet_100pts_points.bin": "--layout xyzrgb",
    "indoor/scannet_scene0000_00_xyzrgb.bin": "--layout xyzrgb",
    "indoor/sunrgbd_000017_xyzrgb.bin": "--layout xyzrgb",
    "lidar/nclt_1326652795280148.bin": "z of point 0 (byte 8) must lie in [-1000, 1000] m",
}
COUNTS = {
    "kitti_spvnas_000000.bin": 123_389,
    "nuscenes_n015_1532402927647951.pcd.bin": 34_688,
    "av2_7fab2350_315966265259836000_labelled.npz": 99_229,
    "os128_patchwork_000000.pcd": 240_000,
    "small_gicp_source.ply": 69_792,
    "mosd_learn0_labelled.pcd": 307_200,
    "office1_organized_nan.pcd": 307_200,
    "room_scan1.pcd": 112_586,
    "fragment_binary.pcd": 113_662,
    "geotransformer_src.npy": 15_953,
    "bunny_ascii.ply": 8_171,
    "bunny_397_ascii.pcd": 397,
    "cturtle.pcd": 167_198,
    "autzen_trim.laz": 110_000,
    "mvk_thin_6classes.las": 6_280,
    "isprs_samp11.pcd": 38_010,
}


@pytest.mark.data
@pytest.mark.parametrize("folder", ["lidar", "indoor", "object", "aerial", "formats"])
def test_every_shared_file_opens_or_says_why_not(shared: Path, folder: str) -> None:
    paths = sorted((shared / "data" / folder).iterdir())
    assert len(paths) >= 4
    for path in paths:
        key = f"{folder}/{path.name}"
        if path.suffix == ".label":
            assert "got a label file" in refusal(path)
        elif key in REFUSED:
            assert REFUSED[key] in refusal(path)
        else:
            cloud = read_points(path)
            assert np.isfinite(cloud.points).all()
            assert cloud.total == COUNTS.get(path.name, cloud.total)
            assert all(len(values) == len(cloud) for values in cloud.attributes.values())


@pytest.mark.data
def test_extents_of_shared_files(shared: Path) -> None:
    """As data/SOURCES.md records them."""
    data = shared / "data"
    for name, low, high in (
        ("aerial/autzen_trim.laz", [636001.76, 848935.2, 406.26], [637179.22, 849497.9, 520.51]),
        ("lidar/os128_patchwork_000000.pcd", [-237.53, -111.64, -9.59], [193.5, 173.63, 34.32]),
        ("lidar/small_gicp_source.ply", [-23.76, -52.0, -3.02], [18.48, 6.51, 9.17]),
        ("object/milk.pcd", [-0.14, -0.26, 0.71], [0.01, -0.01, 0.89]),
    ):
        points = read_points(data / name).points
        np.testing.assert_allclose(points.min(axis=0), low, atol=0.0051)
        np.testing.assert_allclose(points.max(axis=0), high, atol=0.0051)
    room = read_points(data / "indoor" / "scannet_scene0000_00_xyzrgb.bin", layout="xyzrgb")
    assert len(room) == 40_684
    labels = read_points(data / "indoor" / "mosd_learn0_labelled.pcd").classes()
    assert labels is not None
    assert dict(zip(*np.unique(labels, return_counts=True), strict=True)) == {
        1: 153_323, 20: 20_792, 30: 8_177,
    }  # fmt: skip


CONTROLS = {"derived_ok_2000.bin", "derived_one_point.bin", "derived_all_same_point.bin"}
PROBE = """
import resource, sys, time
from sparse3d.data import ScanError, read_points
import laspy, pypcd4
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[1:]:
    start = time.perf_counter()
    try:
        read_points(path)
        print(path, "opened")
    except ScanError as error:
        assert path in str(error)
    assert time.perf_counter() - start < 2, path
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 500 * (1024 if sys.platform == "linux" else 2**20), grown
"""


@pytest.mark.data
def test_malformed_files_cost_little(shared: Path) -> None:
    paths = sorted((shared / "data" / "malformed").iterdir())
    bad = [str(path) for path in paths if path.name not in CONTROLS]
    assert len(bad) >= 16
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *bad], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for name in CONTROLS:
        assert len(read_points(shared / "data" / "malformed" / name)) in (1, 2000)
