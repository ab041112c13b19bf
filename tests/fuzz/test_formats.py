"""Every point-cloud format, and recipes, under malformed bytes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.bytes_of import EFFORTS, fuzz, memory_of, mutations, within
from hypothesis import strategies as st

from sparse3d.data import ScanError, Sensor, simulate
from sparse3d.data.config import load_config
from sparse3d.data.readers import read_points

POINTS = simulate(5, Sensor(beams=8, azimuths=40)).points[:60]
UNPACKED = 2**24
"""What the readers let any small file unpack to."""


def _saved(save: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    file = io.BytesIO()
    save(file, *args, **kwargs)
    return file.getvalue()


def _ply(form: str) -> bytes:
    head = f"ply\nformat {form} 1.0\nelement vertex {len(POINTS)}\n"
    head += "".join(f"property float {name}\n" for name in "xyzi") + "end_header\n"
    if form == "ascii":
        return (head + "\n".join(" ".join(map(str, row)) for row in POINTS)).encode()
    return head.encode() + POINTS.astype("<f4").tobytes()


def _ply_with_lists(form: str) -> bytes:
    head = f"ply\nformat {form} 1.0\nelement vertex {len(POINTS)}\nproperty float x\n"
    head += "property list uchar short near\nproperty float y\nproperty float z\nend_header\n"
    if form == "ascii":
        return (head + "".join(f"{x} 2 1 2 {y} {z}\n" for x, y, z, _ in POINTS)).encode()
    rows = np.zeros(len(POINTS), "<f4, u1, <u2, <u2, <f4, <f4")
    rows["f1"] = 2
    for field, column in zip(("f0", "f4", "f5"), POINTS.T, strict=False):
        rows[field] = column
    return head.encode() + rows.tobytes()


def _pcd(kind: str) -> bytes:
    head = "VERSION .7\nFIELDS x y z intensity\nSIZE 4 4 4 4\nTYPE F F F F\nCOUNT 1 1 1 1\n"
    head += f"WIDTH {len(POINTS)}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(POINTS)}\n"
    head += f"DATA {kind}\n"
    if kind == "ascii":
        return (head + "\n".join(" ".join(map(str, row)) for row in POINTS)).encode()
    return head.encode() + POINTS.astype("<f4").tobytes()


def _las(packed: bool) -> bytes:
    laspy = pytest.importorskip("laspy")
    cloud = laspy.create(point_format=0, file_version="1.2")
    cloud.x, cloud.y, cloud.z = POINTS[:, :3].astype(np.float64).T
    file = io.BytesIO()
    cloud.write(file, do_compress=packed)
    return file.getvalue()


FORMATS: dict[str, Callable[[], bytes]] = {
    "a.pcd.bin": lambda: np.pad(POINTS, ((0, 0), (0, 1))).astype("<f4").tobytes(),
    "ascii.ply": lambda: _ply("ascii"),
    "binary.ply": lambda: _ply("binary_little_endian"),
    "lists ascii.ply": lambda: _ply_with_lists("ascii"),
    "lists binary.ply": lambda: _ply_with_lists("binary_little_endian"),
    "ascii.pcd": lambda: _pcd("ascii"),
    "binary.pcd": lambda: _pcd("binary"),
    "a.las": lambda: _las(False),
    "a.laz": lambda: _las(True),
    "a.npy": lambda: _saved(np.save, POINTS),
    "a.npz": lambda: _saved(np.savez_compressed, points=POINTS),
}


@pytest.mark.parametrize("seconds", EFFORTS)
@pytest.mark.parametrize("name", FORMATS)
def test_points(name: str, seconds: float, tmp_path: Path) -> None:
    reader = {".pcd": "pypcd4", ".laz": "lazrs"}.get(Path(name).suffix)
    if reader:
        pytest.importorskip(reader)
    path = tmp_path / name
    seed = FORMATS[name]()
    path.write_bytes(seed)
    assert len(read_points(path, drop_invalid=True).scan().points) == len(POINTS)
    unpacked = UNPACKED // 4 if name.endswith((".pcd", ".laz", ".npz")) else 0

    def check(data: bytes, drop: bool) -> None:
        path.write_bytes(data)
        refusal = ""
        with within(20), memory_of(len(data) + unpacked):
            try:
                cloud = read_points(path, drop_invalid=drop)
                for part in (cloud.intensity, cloud.classes, cloud.colors):
                    part()
            except ScanError as error:
                refusal = str(error)
        if refusal:
            assert "\n" not in refusal
            assert str(path) in refusal
        else:
            assert np.isfinite(cloud.scan().points[:, :3]).all()

    fuzz(check, seconds, 120, data=mutations(seed), drop=st.booleans())


RECIPE = (Path(__file__).parents[2] / "configs" / "demo.yaml").read_bytes()
BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{x}: &{x} [{', '.join([f'*{y}'] * 9)}]\n"
    for x, y in zip("bcdefghij", "abcdefghi", strict=True)
)
BAD = {
    "bomb": BOMB + "input: {voxel_size: *j, features: [x]}\n",
    "number for a list": RECIPE.decode() + "\nclasses: 5\n",
    "table in a list": RECIPE.decode() + "\nclasses: [{a: 1}]\n",
    "features": "input: {features: 5, voxel_size: 0.1}\nmodel: {}\n",
    "path": RECIPE.decode() + "\nweights: ../../secret.pt\n",
    "code": "!!python/object/apply:os.system [true]\n",
    "itself": "&a [*a]\n",
    "deep lists": "a: " + "[" * 100_000,
    "deep lists, closed": "a: " + "[" * 20_000 + "]" * 20_000,
    "deep tables": "{" * 5_000,
    "deep rows": "- " * 30_000 + "x",
    "deep keys": "? " * 20_000,
    "deep block": "".join(f"{' ' * i}a:\n" for i in range(500)),
    "long": "a: " + "a" * 10**7,
}


def _recipe(path: Path) -> None:
    refusal = ""
    with within(10), memory_of(UNPACKED // 4):
        try:
            load_config(path)
        except ValueError as error:
            refusal = str(error)
    assert "\n" not in refusal


@pytest.mark.parametrize("name", BAD)
def test_hostile_recipes(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(BAD[name])
    with within(10), memory_of(UNPACKED // 4), pytest.raises(ValueError, match=r"a\.yaml: "):
        load_config(path)


@pytest.mark.parametrize("seconds", EFFORTS)
def test_recipes(seconds: float, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        _recipe(path)

    fuzz(check, seconds, 150, data=mutations(RECIPE))
