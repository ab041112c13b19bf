"""`sparse3d submit`: the zip is whole and right, or absent."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from kitti_folder import make_kitti
from typer.testing import CliRunner, Result

from sparse3d.cli import app
from sparse3d.data.dataset import SemanticKITTI
from sparse3d.data.submission import check_submission


def call(*args: object) -> Result:
    return CliRunner().invoke(app, ["submit", *map(str, args)])


@pytest.fixture(scope="module")
def kitti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scans = dict.fromkeys(range(11, 22), 1) | {13: 2}
    return make_kitti(tmp_path_factory.mktemp("kitti"), scans, labels=False)


@pytest.fixture(scope="module")
def made(kitti: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "a.zip"
    result = call(kitti, "--out", path, "--device", "cpu", "--incomplete")
    assert result.exit_code == 0, result.output
    assert "12 scans of 11 sequences: names, sizes and raw ids are right" in result.stdout
    return path


def test_the_zip_is_what_the_benchmark_takes(kitti: Path, made: Path) -> None:
    with zipfile.ZipFile(made) as entries:
        names = entries.namelist()
        assert entries.testzip() is None
        folders = [name for name in names if name.endswith("/")]
        assert folders[0] == "sequences/"
        assert {f"sequences/{s}/predictions/" for s in range(11, 22)} < set(folders)
        files = [name for name in names if not name.endswith("/")]
        assert len(files) == 12
        for name in files:
            scan = kitti / name.replace("predictions", "velodyne").replace(".label", ".bin")
            labels = np.frombuffer(entries.read(name), "<u4")
            assert len(labels) == scan.stat().st_size // 16
            assert set(labels.tolist()) <= {10, 30, 40, 48, 50, 51, 70, 71, 72, 80, 81}
    assert call(kitti, "--out", made, "--check", "--incomplete").exit_code == 0


def change(source: Path, target: Path, name: str, how: str) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            body = old.read(info)
            if info.filename == name and how == "absent":
                continue
            if info.filename == name and how == "short":
                body = body[:-4]
            if info.filename == name and how == "training ids":
                body = np.full(len(body) // 4, 9, "<u4").tobytes()
            new.writestr(info.filename, body)
        if how == "more":
            new.writestr("sequences/11/predictions/000009.label", b"")
    return target


@pytest.mark.parametrize(
    ("how", "name", "words"),
    [
        (
            "absent",
            "sequences/13/predictions/000001.label",
            r"must hold sequences/13/predictions/000001\.label, got none",
        ),
        ("absent", "sequences/", r"must hold sequences/, got none"),
        (
            "short",
            "sequences/15/predictions/000000.label",
            r"15/predictions/000000\.label must hold \d+ labels of 4 bytes",
        ),
        (
            "training ids",
            "sequences/21/predictions/000000.label",
            "got 9 at point 0; training ids must be mapped back",
        ),
        ("more", "", r"must hold predictions only, got sequences/11/predictions/000009\.label"),
    ],
)
def test_what_is_wrong_is_found(
    kitti: Path, made: Path, tmp_path: Path, how: str, name: str, words: str
) -> None:
    path = change(made, tmp_path / "b.zip", name, how)
    with pytest.raises(ValueError, match=words):
        check_submission(path, SemanticKITTI(kitti, "test"), lambda note: None)
    result = call(kitti, "--out", path, "--check", "--incomplete")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_absent_sequences_are_left_out(tmp_path: Path) -> None:
    root = make_kitti(tmp_path / "kitti", {11: 1}, labels=False)
    path = tmp_path / "a.zip"
    result = call(root, "--out", path, "--device", "cpu")
    assert result.exit_code == 2
    assert "(--incomplete)" in result.stderr
    for check in ((), ("--check",)):
        result = call(root, "--out", path, "--incomplete", *check)
        assert result.exit_code == 0, result.output
        assert "1 scans of 1 sequences" in result.stdout
        absent = ", ".join(str(number) for number in range(12, 22))
        assert f"warning: sequences {absent} are not there and left out\n" in result.stderr
    with zipfile.ZipFile(path) as entries:
        assert entries.namelist()[1:] == [
            "sequences/11/",
            "sequences/11/predictions/",
            "sequences/11/predictions/000000.label",
        ]
    empty = make_kitti(tmp_path / "other", {8: 1})
    result = call(empty, "--out", tmp_path / "b.zip", "--incomplete")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_no_folder_is_made_for_a_zip(kitti: Path, tmp_path: Path) -> None:
    result = call(kitti, "--out", tmp_path / "x" / "a.zip", "--incomplete")
    assert result.exit_code == 2
    assert "--out must lie in a folder that is there, got " in result.stderr
    assert not (tmp_path / "x").exists()


def test_no_zip_without_every_scan(tmp_path: Path, kitti: Path) -> None:
    root = make_kitti(tmp_path / "kitti", dict.fromkeys(range(11, 22), 1), labels=False)
    scan = root / "sequences" / "17" / "velodyne" / "000000.bin"
    good = scan.read_bytes()
    scan.write_bytes(good[:-3])
    args = (root, "--out", tmp_path / "a.zip", "--device", "cpu", "--incomplete")
    result = call(*args)
    assert result.exit_code == 2
    assert "17/velodyne/000000.bin: size must be a multiple" in result.stderr
    assert "a.zip: must hold every scan, got 1 broken; not made" in result.stderr
    assert not (tmp_path / "a.zip").exists()
    # What was predicted stays, so only the mended scan is new.
    kept = tmp_path / "a.predictions" / "sequences" / "11" / "predictions" / "000000.label"
    before = kept.stat().st_mtime_ns
    scan.write_bytes(good)
    assert call(*args).exit_code == 0
    assert kept.stat().st_mtime_ns == before
    # Labels that went bad since are found while packing: the good zip of before stays.
    old = (tmp_path / "a.zip").read_bytes()
    kept.write_bytes(b"\x09\0\0\0" * (kept.stat().st_size // 4))
    assert call(*args).exit_code == 2
    assert (tmp_path / "a.zip").read_bytes() == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.predictions", "a.zip", "kitti"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["gone"], "gone: must be SemanticKITTI's folder"),
        (["ROOT"], "sequence 11 holds 1 scans, the benchmark's 921"),
        (["ROOT", "--out", "a.tar"], "--out must end with .zip"),
        (["ROOT", "--out", "folder.zip"], "--out must be a file, got the folder folder.zip"),
        (["ROOT", "--check", "--incomplete", "--out", "gone.zip"], "gone.zip: must be a zip"),
        (["ROOT", "--incomplete", "--checkpoint", "gone.pt"], "gone.pt: cannot be read"),
    ],
)
def test_bad_arguments_are_one_line(
    kitti: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.zip").mkdir()
    result = call(*[str(kitti) if arg == "ROOT" else arg for arg in args])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr


def test_labels_of_another_folder_are_not_packed(tmp_path: Path) -> None:
    """Scans of the same sizes, so that nothing else tells the two folders apart."""
    one = make_kitti(tmp_path / "one", dict.fromkeys(range(11, 22), 1), labels=False)
    shutil.copytree(one, tmp_path / "two")
    args = ("--out", tmp_path / "a.zip", "--device", "cpu", "--incomplete")
    assert call(one, *args).exit_code == 0
    result = call(tmp_path / "two", *args)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "must hold the same evaluation, got one of root " in result.stderr
    assert "--fresh" in result.stderr
    (tmp_path / "link").symlink_to(one)
    assert call(tmp_path / "link", *args).exit_code == 0  # the same folder by another name


@pytest.mark.parametrize(
    "option",
    [
        ("--checkpoint", "gone.pt"),
        ("--config", "demo"),  # the default, but given
        ("--device", "gone"),
        ("--workers", "1"),
        ("--drop-invalid",),
        ("--fresh",),
    ],
)
def test_options_of_a_network_are_refused_beside_check(
    kitti: Path, made: Path, option: tuple[str, ...]
) -> None:
    result = call(kitti, "--out", made, "--check", "--incomplete", *option)
    assert result.exit_code == 2
    got = option[1] if len(option) > 1 else "it"
    assert result.stderr == (
        f"error: {option[0]} must be left out with --check, got {got}; give one of the two\n"
    )


@pytest.mark.nightly
def test_two_processes_make_the_same_zip(kitti: Path, made: Path, tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    command = ["2", "-m", "sparse3d", "submit", str(kitti), "--out", str(tmp_path / "b.zip")]
    result = subprocess.run(
        [*launcher, *command, "--device", "cpu", "--incomplete"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    with zipfile.ZipFile(made) as one, zipfile.ZipFile(tmp_path / "b.zip") as two:
        assert one.namelist() == two.namelist()
        assert all(one.read(name) == two.read(name) for name in one.namelist())
