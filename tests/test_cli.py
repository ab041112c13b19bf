"""`sparse3d segment` from the outside: files, exit status, one-line errors."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from typer.testing import CliRunner, Result

from sparse3d import _entry, _interrupt, selftest
from sparse3d._version import __version__
from sparse3d.cli import app
from sparse3d.data import Sensor, simulate
from sparse3d.data.files import write_labels, write_ply, write_scan

ROOT = Path(__file__).parent.parent
STREET = simulate(12, Sensor(beams=32, azimuths=500))


def call(*args: object) -> Result:
    return CliRunner().invoke(app, ["segment", *map(str, args)])


def scan(folder: Path, name: str = "a.bin", count: int | None = None) -> Path:
    path = folder / name
    write_scan(path, STREET.points[:count])
    return path


def errors(result: Result) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("error: ")]


def test_a_scan_gives_three_files_and_two_tables(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = call(scan(tmp_path), "--out", out, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in out.iterdir()) == ["a.label", "a.ply", "a.png"]
    labels = np.fromfile(out / "a.label", "<u4")
    assert len(labels) == len(STREET.points)
    known = {10, 30, 40, 48, 50, 51, 70, 71, 72, 80, 81}
    assert set(np.unique(labels).tolist()) <= known
    assert f"{(labels == 40).sum():,}" in result.stdout
    for word in ("road", "read", "voxelise", "network", "write", "together", "1 scan"):
        assert word in result.stdout
    assert (labels == (STREET.labels & 0xFFFF)).mean() > 0.85


def test_many_scans_and_one_bad_one(tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    scan(scans, "a.bin", 2000)
    scan(scans, "c.bin", 1)
    (scans / "b.bin").write_bytes(b"12345")
    out = tmp_path / "out"
    result = call(scans, "--out", out)
    assert result.exit_code == 2
    assert len(errors(result)) == 1
    assert "b.bin: size must be a multiple of 16" in errors(result)[0]
    assert sorted(p.name for p in out.glob("*.label")) == ["a.label", "c.label"]
    assert len(list(out.iterdir())) == 6
    assert "2 scans" in result.stdout


def test_truth_is_scored(tmp_path: Path) -> None:
    path = scan(tmp_path)
    write_labels(tmp_path / "a.truth.label", STREET.labels)
    result = call(path, "--out", tmp_path / "out", "--truth", tmp_path / "a.truth.label")
    assert result.exit_code == 0, result.output
    for word in ("ground", "vehicle", "structure", "over 19", "that occur"):
        assert word in result.stdout
    write_labels(tmp_path / "a.truth.label", STREET.labels[:-1])
    other = tmp_path / "other"
    result = call(path, "--out", other, "--truth", tmp_path / "a.truth.label")
    assert result.exit_code == 2
    assert "1 missing from label" in errors(result)[0]
    assert not other.exists()


def test_points_can_be_dropped_by_name(tmp_path: Path) -> None:
    points = STREET.points[:500].copy()
    points[9, 2] = np.nan
    write_scan(tmp_path / "a.bin", points)
    out = tmp_path / "out"
    result = call(tmp_path / "a.bin", "--out", out)
    assert result.exit_code == 2
    assert "z of point 9 (byte 152) must be finite" in errors(result)[0]
    assert not out.exists()
    result = call(tmp_path / "a.bin", "--out", out, "--drop-invalid")
    assert result.exit_code == 0
    assert "warning: " in result.stderr
    assert "dropped 1 of 500 points" in result.stderr
    labels = np.fromfile(out / "a.label", "<u4")
    assert len(labels) == 500
    assert labels[9] == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.ply", "must begin with 'ply'"),
        ("a.pcd", "must begin with a PCD header"),
        ("a.las", "must begin with LASF"),
        ("a.npz", "npz archive cannot be read"),
        ("a.pcd.bin", "size must be a multiple of 20 bytes"),
        ("a.txt", "must end in one of .pcd.bin, .bin"),
        ("a.label", "must be a scan, got a label file of 3 labels"),
    ],
)
def test_what_is_no_scan_is_refused(tmp_path: Path, name: str, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(12))
    result = call(path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert [words in line for line in errors(result)] == [True]
    assert str(path) in errors(result)[0]
    assert not (tmp_path / "out").exists()


def test_other_formats_are_segmented_as_the_bin_is(tmp_path: Path) -> None:
    pytest.importorskip("pypcd4")
    points = STREET.points[:4000]
    scans = tmp_path / "scans"
    scans.mkdir()
    write_ply(scans / "a.ply", points, np.zeros((len(points), 3), np.uint8))
    np.save(scans / "b.npy", points)
    ring = np.arange(len(points), dtype=np.float32)[:, None] % 32
    grey = np.floor(points[:, 3:] * 255)
    (scans / "c.pcd.bin").write_bytes(np.concatenate([points[:, :3], grey, ring], 1).tobytes())
    (scans / "d.pcd").write_bytes(
        b"VERSION 0.7\nFIELDS x y z intensity\nSIZE 4 4 4 4\nTYPE F F F F\nCOUNT 1 1 1 1\n"
        + f"WIDTH {len(points)}\nHEIGHT 1\nPOINTS {len(points)}\nDATA binary\n".encode()
        + points.tobytes()
    )
    out = tmp_path / "out"
    result = call(scans, "--out", out)
    assert result.exit_code == 0, result.output
    assert "4 scans" in result.stdout
    assert "a.ply: has no intensity: remission is 0" in result.stderr
    write_scan(tmp_path / "e.bin", points)
    assert call(tmp_path / "e.bin", "--out", out).exit_code == 0
    wanted = (out / "e.label").read_bytes()
    for name in "abcd":  # the demo weights do not see remission
        assert (out / f"{name}.label").read_bytes() == wanted


def test_a_scan_is_not_overwritten_by_its_picture(tmp_path: Path) -> None:
    write_ply(tmp_path / "a.ply", STREET.points[:50], np.zeros((50, 3), np.uint8))
    before = (tmp_path / "a.ply").read_bytes()
    result = call(tmp_path / "a.ply", "--out", tmp_path)
    assert result.exit_code == 2
    assert "must not be overwritten" in errors(result)[0]
    assert (tmp_path / "a.ply").read_bytes() == before


def test_columns_of_a_bin_can_be_named(tmp_path: Path) -> None:
    points = STREET.points[:600, :3]
    (tmp_path / "a.bin").write_bytes(points.tobytes())
    assert call(tmp_path / "a.bin", "--out", tmp_path / "o").exit_code == 2
    result = call(tmp_path / "a.bin", "--out", tmp_path / "o", "--layout", "xyz")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "o" / "a.label").stat().st_size == 4 * 600


def test_ground_truth_beside_a_scan_is_not_overwritten(tmp_path: Path) -> None:
    path = scan(tmp_path, count=10)
    write_labels(tmp_path / "a.label", STREET.labels[:10])
    result = call(path, "--out", tmp_path)
    assert result.exit_code == 2
    assert "must not be overwritten" in errors(result)[0]
    np.testing.assert_array_equal(np.fromfile(tmp_path / "a.label", "<u4"), STREET.labels[:10])


def test_two_scans_of_one_name(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        scan(tmp_path / folder, count=5)
    result = call(tmp_path / "x", tmp_path / "y", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "names must differ" in errors(result)[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["absent.bin"], "absent.bin: cannot be read: No such file"),
        (["--config", "nothing", "a.bin"], "nothing: must be a YAML file or the name of one"),
        (["--checkpoint", "nothing.pt", "a.bin"], "nothing.pt: cannot be read"),
        (["--device", "tpu", "a.bin"], "device must be auto, cpu, cuda or mps"),
        (["--config", "minkunet18_w16", "a.bin"], "checkpoint must be given"),
    ],
)
def test_bad_arguments_are_one_line(args: list[str], words: str) -> None:
    result = call(*args)
    assert result.exit_code == 2
    assert len(errors(result)) == 1
    assert words in errors(result)[0]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["a.bin", "--seed", "7"], "--seed must be left out without --demo, got 7"),
        (["--report", "1", "--seed", "3"], "--seed must be left out without --demo, got 3"),
        (["--report", "1", "--truth", "."], "--truth must be left out without a scan, got ."),
        (["--report", "1", "--drop-invalid"],
         "--drop-invalid must be left out without a scan, got it"),
        (["--report", "1", "--layout", "xyz"], "--layout must be left out without a scan, got xyz"),
        (["--report", "1", "--max-remission", "1"],
         "--max-remission must be left out without a scan, got 1.0"),
        (["a.bin", "--layout", "xyz", "--max-remission", "255"],
         "--max-remission must be left out with --layout, got 255.0"),
    ],
)  # fmt: skip
def test_options_without_effect_are_refused(args: list[str], words: str) -> None:
    result = call(*args)
    assert result.exit_code == 2
    assert len(errors(result)) == 1
    assert errors(result)[0].startswith(f"error: {words}")


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"sparse3d {__version__}\n")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["segment", "--nope"], "No such option: --nope; see sparse3d segment --help"),
        (["nope"], "No such command 'nope'; see sparse3d --help"),
        (["--nope"], "No such option: --nope; see sparse3d --help"),
        (["doctor", "--nope"], "unrecognized arguments: --nope; see sparse3d doctor --help"),
    ],
)
def test_misuse_is_one_line(args: list[str], line: str) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "sparse3d", *args],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (made.returncode, made.stdout, made.stderr) == (2, "", f"error: {line}\n")


def test_a_home_that_cannot_be_written_is_no_news(tmp_path: Path) -> None:
    away = {"HOME": "/dev/null", "XDG_CONFIG_HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}
    kept = {name: value for name, value in os.environ.items() if name != "MPLCONFIGDIR"}
    made = subprocess.run(
        [sys.executable, "-m", "sparse3d", "segment", "gone.bin", "--out", str(tmp_path / "o")],
        capture_output=True, text=True, check=False, timeout=120, env={**kept, **away},
    )  # fmt: skip
    assert made.stderr == "error: gone.bin: cannot be read: No such file or directory\n"


def test_no_scan_at_all() -> None:
    result = call()
    assert result.exit_code == 2
    assert "at least one scan" in " ".join(result.stderr.split())


def test_demo(tmp_path: Path) -> None:
    write_labels(tmp_path / "demo.label", STREET.labels[:3])  # of an earlier run: replaced
    result = call("--demo", "--report", 1, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    names = {p.name for p in tmp_path.iterdir()}
    assert {"demo.bin", "demo.label", "demo.ply", "demo.png"} <= names
    truth = np.fromfile(tmp_path / "truth" / "demo.label", "<u4") & 0xFFFF
    labels = np.fromfile(tmp_path / "demo.label", "<u4")
    assert (labels == truth).mean() > 0.9
    printed = " ".join(result.stdout.split())
    assert "1 held-out simulated" in printed
    fence = next(line for line in reversed(result.stdout.splitlines()) if " fence " in line)
    assert fence.split()[-4:-1] == ["-", "│", "0"]  # that street has none: no score
    assert re.search(r"mean of the \d+ that occur", printed)


def test_installed_command_finds_its_weights_from_any_folder(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("sparse3d")
    if not script.exists():
        pytest.skip("sparse3d is not installed in this environment")
    made = subprocess.run(
        [script, "segment", scan(tmp_path), "--out", tmp_path / "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "out" / "a.label").stat().st_size == 4 * len(STREET.points)


def test_a_place_that_cannot_hold_results_is_refused_first(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    result = call(scan(tmp_path), "--out", taken)
    assert result.exit_code == 2
    assert errors(result) == [
        f"error: --out must be a folder, got the file {taken}; name another place"
    ]
    assert taken.read_text() == "mine"


@pytest.mark.parametrize("target", ["itself", "nowhere"])
def test_a_link_that_leads_nowhere_is_no_place_for_results(tmp_path: Path, target: str) -> None:
    link = tmp_path / "itself"
    link.symlink_to(tmp_path / target)
    result = call(scan(tmp_path), "--out", link / "deeper")
    assert result.exit_code == 2
    assert errors(result) == [
        f"error: --out must be a folder, got the broken link {link}; name another"
    ]
    assert not (tmp_path / "nowhere").exists()


def test_weights_are_a_regular_file(tmp_path: Path) -> None:
    """A pipe without a writer would keep the command waiting, /dev/zero would fill the memory."""
    pipe = tmp_path / "weights.pt"
    os.mkfifo(pipe)
    for source in (pipe, Path("/dev/zero")):
        result = call(scan(tmp_path), "--out", tmp_path / "o", "--checkpoint", source)
        assert result.exit_code == 2
        assert f"{source} must be a regular file, got a device or pipe" in errors(result)[0]
        args = ["convert", str(source), str(tmp_path / "b.pth")]
        assert CliRunner().invoke(app, args).exit_code == 2
    assert not (tmp_path / "o").exists()
    assert not (tmp_path / "b.pth").exists()


def test_points_too_far_apart_name_their_file(tmp_path: Path) -> None:
    path = tmp_path / "far.npy"
    np.save(path, np.array([[0, 0, 0], [1e9, 0, 0], [0, 1e9, 0.5]]))
    result = call(path, "--out", tmp_path / "o")
    assert result.exit_code == 2
    assert errors(result)[0].startswith(f"error: {path}: points / voxel_size must be within int32")
    assert not (tmp_path / "o").exists()


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    """Dollars are no formula of the picture's title, and no letter is one too many for it."""
    names = [b"a$x_{$b.bin", "\u96ea\U0001f44d.bin".encode(), b"bad\xff.bin"]
    out = tmp_path / os.fsdecode(b"out\xff")
    try:
        scans = [scan(tmp_path, os.fsdecode(name), 2000) for name in names]
    except OSError:
        pytest.skip("this file system wants names in UTF-8")
    made = subprocess.run(
        [sys.executable, "-m", "sparse3d", "segment", *scans, "--out", out],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (made.returncode, made.stderr) == (0, "")
    assert len(list(out.iterdir())) == 9
    assert "out\\udcff" in made.stdout


def test_weights_of_another_network_or_no_weights_at_all(tmp_path: Path) -> None:
    other = call(scan(tmp_path), "--out", tmp_path / "o", "--config", "minkunet18_w16",
                 "--checkpoint", ROOT / "sparse3d" / "weights" / "demo.pt")  # fmt: skip
    assert other.exit_code == 2
    assert "must be of shape [32, 3, 3, 3, 16], got [24, 3, 3, 3, 16]" in errors(other)[0]
    text = call(scan(tmp_path), "--out", tmp_path / "o", "--checkpoint", ROOT / "README.md")
    assert text.exit_code == 2
    assert "must be a file of weights saved by torch" in errors(text)[0]
    assert "weights_only" not in errors(text)[0]
    assert not (tmp_path / "o").exists()


def test_as_a_program(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "sparse3d", "segment", "gone.bin", "--out", str(tmp_path / "o")],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert made.returncode == 2
    assert made.stderr == "error: gone.bin: cannot be read: No such file or directory\n"
    assert made.stdout == ""


MALFORMED = (
    ("derived_ok_2000", 2000),
    ("derived_one_point", 1),
    ("derived_all_same_point", 2000),
    ("derived_empty", 0),
)


@pytest.mark.data
@pytest.mark.parametrize(("name", "count"), MALFORMED)
def test_odd_scans_pass(tmp_path: Path, shared: Path, name: str, count: int) -> None:
    result = call(shared / "data" / "malformed" / f"{name}.bin", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert (tmp_path / f"{name}.label").stat().st_size == 4 * count
    assert ("warning: " in result.stderr) == (count == 0)


@pytest.mark.data
def test_malformed_scans_are_refused(tmp_path: Path, shared: Path) -> None:
    fine = {name for name, _ in MALFORMED}
    paths = sorted((shared / "data" / "malformed").iterdir())
    bad = [path for path in paths if path.stem not in fine]
    assert len(bad) >= 10
    result = call(*bad, "--out", tmp_path / "out")
    assert result.exit_code == 2
    lines = errors(result)
    assert len(lines) == len(bad)
    assert all(str(path) in line for path, line in zip(bad, lines, strict=True))
    assert not (tmp_path / "out").exists()


COMMANDS = {
    "segment": (["--demo"], "sparse3d.data.run", "run"),
    "eval": (["ROOT"], "sparse3d.data.eval_command", "evaluate"),
    "submit": (["ROOT"], "sparse3d.data.submit_command", "submit"),
    "train": (["train_tiny"], "sparse3d.train.command", "train"),
    "convert": (["a.pth", "b.pth"], "sparse3d.checkpoint._command", "run"),
    "view": (["a.bin"], "sparse3d.view.run", "run"),
}


def test_every_command_is_among_those_that_ctrl_c_is_tried_on() -> None:
    assert {*COMMANDS, "doctor", "selftest"} == {
        *(command.name or command.callback.__name__ for command in app.registered_commands),
        *re.findall(r"sparse3d (\w+) \(", str(app.info.epilog)),
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_waits_for_imports_and_not_for_the_work(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is let through once, after a command's modules are there and before it does anything."""
    args, module, name = COMMANDS[command]
    seen: list[str] = []

    def work(*_: object) -> int:
        seen.append("work")
        return 3

    monkeypatch.setattr(_interrupt, "raised", lambda: seen.append("raised"))
    monkeypatch.setattr(importlib.import_module(module), name, work)
    assert CliRunner().invoke(app, [command, *args]).exit_code == 3
    assert seen == ["raised", "work"]
    seen.clear()
    assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0
    assert CliRunner().invoke(app, [command, "--no-such-option"]).exit_code == 2
    assert seen == []


def test_ctrl_c_is_let_through_to_the_selftest(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(_interrupt, "raised", lambda: seen.append("raised"))
    monkeypatch.setattr(selftest, "main", lambda args: bool(seen.append(args)))
    monkeypatch.setattr(sys, "argv", ["sparse3d", "selftest", "--rows", "9"])
    assert _entry.main() == 0
    assert seen == ["raised", ["--rows", "9"]]


@pytest.mark.parametrize("command", ["segment", "view", "eval", "submit"])
def test_help_says_that_far_points_are_dropped_too(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    words = " ".join(re.findall(r"[\w,.-]+", shown.stdout))
    assert "--drop-invalid" in words
    assert re.search(r"NaN (or|and) infinite \w+, and a few (that lie|beyond)", words), words


def test_convert_writes_our_layout_and_refuses_what_is_no_checkpoint(tmp_path: Path) -> None:
    theirs = {"0.kernel": torch.randn(27, 4, 8), "1.weight": torch.ones(8)}
    torch.save(theirs, tmp_path / "me.pth")
    args = [tmp_path / "me.pth", tmp_path / "ours.pth", "--layout", "minkowski"]
    made = CliRunner().invoke(app, ["convert", *map(str, args)])
    assert made.exit_code == 0, made.output
    ours = torch.load(tmp_path / "ours.pth", weights_only=True)
    kernel = theirs["0.kernel"].reshape(3, 3, 3, 4, 8).permute(4, 2, 1, 0, 3)
    assert torch.equal(ours["0.weight"], kernel)
    (tmp_path / "no.pth").write_text("no checkpoint")
    bad = CliRunner().invoke(app, ["convert", str(tmp_path / "no.pth"), str(tmp_path / "x.pth")])
    assert bad.exit_code == 2
    assert bad.stderr.startswith("error: ")
    assert bad.stderr.count("\n") == 1
    assert not (tmp_path / "x.pth").exists()


def test_what_convert_cannot_do_is_one_line(tmp_path: Path) -> None:
    source = tmp_path / "a.pth"
    torch.save({"conv.weight": torch.zeros(3, 3, 3, 4, 8)}, source)
    (tmp_path / "folder.pth").mkdir()
    before = source.read_bytes()
    for target, words in (
        (source, f"target must be another file than the one that is read, got {source}"),
        (
            tmp_path / "gone" / "b.pth",
            f"target must lie in a folder that is there, got {tmp_path}/gone/b.pth; make "
            f"{tmp_path}/gone first, or name another place",
        ),
        (
            tmp_path / "folder.pth",
            f"target must be a file, got the folder {tmp_path}/folder.pth; name one in it",
        ),
        (
            tmp_path / "b.xyz",
            f"target must end in .safetensors, .pth or .pt, got {tmp_path}/b.xyz",
        ),
    ):
        args = ["convert", str(source), str(target), "--layout", "spconv"]
        made = CliRunner().invoke(app, args)
        assert (made.exit_code, made.stderr) == (2, f"error: {words}\n")
    assert source.read_bytes() == before
    unclear = CliRunner().invoke(app, ["convert", str(source), str(tmp_path / "b.pth")])
    assert unclear.stderr.endswith(
        "say which library wrote it: --layout spconv-2.1 (spconv 2.0 and 2.1) or --layout spconv-1 "
        "(spconv 1.x)\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pth", "folder.pth"]
