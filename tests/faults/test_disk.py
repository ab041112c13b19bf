"""Full disks and programs killed while they write: outputs are whole or absent."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults.commands import COMMAND, killed, names, run, start

pytest.importorskip("typer")
pytest.importorskip("matplotlib")

from sparse3d import checkpoint
from sparse3d.data import Sensor, simulate, write_labels, write_ply, write_scan
from sparse3d.data.files import atomic
from sparse3d.data.picture import write_picture
from sparse3d.data.segment import write_results

STREET = simulate(5, Sensor(beams=16, azimuths=200))
COLOURS = np.zeros((len(STREET.points), 3), np.uint8)
STATE = {"weight": torch.zeros(40_000)}

WRITERS: dict[str, Callable[[Path], Any]] = {
    "a.label": lambda p: write_labels(p, STREET.labels),
    "a.bin": lambda p: write_scan(p, STREET.points),
    "a.ply": lambda p: write_ply(p, STREET.points, COLOURS, STREET.labels),
    "a.png": lambda p: write_picture(p, STREET.points, STREET.labels, "a street"),
    "a.pth": lambda p: checkpoint.save(STATE, p),
    "a.safetensors": lambda p: checkpoint.save(STATE, p),
}


class _Full:
    """A file on a disk with room for some bytes."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room

    def write(self, data: Any) -> int:
        self._room -= memoryview(data).nbytes
        if self._room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Any:
        self._file.__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        self._file.__exit__(*args)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """From now on new files hold so many bytes, then the disk is full."""
    plain = Path.open

    def limit(room: int) -> None:
        def opened(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            file = plain(self, mode, *args, **kwargs)
            return _Full(file, room) if set(mode) & set("wxa") else file

        monkeypatch.setattr(Path, "open", opened)

    return limit


@pytest.mark.parametrize("room", [0, 100])
@pytest.mark.parametrize("old", [None, b"old"])
@pytest.mark.parametrize("name", WRITERS)
def test_disk_full(
    name: str, old: bytes | None, room: int, tmp_path: Path, full: Callable[[int], None]
) -> None:
    if name.endswith("safetensors"):
        pytest.importorskip("safetensors")
    path = tmp_path / name
    if old is not None:
        path.write_bytes(old)
    full(room)
    with pytest.raises(OSError, match="No space left on device") as caught:
        WRITERS[name](path)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)
    assert names(tmp_path) == ([name] if old is not None else [])
    assert old is None or path.read_bytes() == old


@pytest.mark.parametrize("name", WRITERS)
def test_no_such_folder(name: str, tmp_path: Path) -> None:
    if name.endswith("safetensors"):
        pytest.importorskip("safetensors")
    for folder in (tmp_path / "gone", tmp_path / "file"):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(OSError) as caught:  # noqa: PT011  (its name is looked at)
            WRITERS[name](folder / name)
        assert caught.value.filename == str(folder / name)
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("fails", ["write_picture", "write_ply", "write_labels"])
def test_results_of_a_scan_come_together(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparse3d.data import segment
    from sparse3d.data.kitti import Scan

    rows = np.arange(len(STREET.points))
    scan = Scan(Path("a.bin"), STREET.points, rows, len(rows))

    def no_room(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(segment, fails, no_room)
    with pytest.raises(OSError, match="No space left"):
        write_results(tmp_path / "out", "a", scan, STREET.labels, "title")
    assert names(tmp_path / "out") == []


LIMITED = """
    import resource, sys
    from sparse3d._entry import main
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
    sys.exit(main())
"""


def test_segment_on_a_full_disk(tmp_path: Path) -> None:
    """A file size limit fails where a full disk does: in the middle of a real write."""
    scan = tmp_path / "a.bin"
    write_scan(scan, STREET.points)
    out = tmp_path / "out"
    status, _, err = run(LIMITED, 20_000, "segment", scan, "--out", out, "--device", "cpu")
    lines = err.splitlines()
    assert status == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"error: {out / 'a.png'}: File too large; name another place")
    assert names(out) == []


@pytest.mark.parametrize("target", ["b.pth", "b.safetensors"])
def test_convert_on_a_full_disk(target: str, tmp_path: Path) -> None:
    if target.endswith("safetensors"):
        pytest.importorskip("safetensors")
    torch.save({"0.weight": torch.zeros(30_000)}, tmp_path / "a.pth")
    status, _, err = run(
        LIMITED, 9000, "convert", tmp_path / "a.pth", tmp_path / target, "--layout", "spconv"
    )
    assert (status, err.count("\n")) == (2, 1), err
    assert "File too large" in err
    assert str(tmp_path / target) in err
    assert names(tmp_path) == ["a.pth"]


ENDLESS = """
    import sys
    from pathlib import Path
    from faults.test_disk import WRITERS
    path = Path(sys.argv[1])
    print("ready", flush=True)
    while True:
        WRITERS[path.name](path)
"""


@pytest.mark.parametrize("name", ["a.png", "a.pth", "a.safetensors"])
def test_killed_while_writing(name: str, tmp_path: Path) -> None:
    """Over and over the same file; whatever the moment of the kill, what is there is whole."""
    if name.endswith("safetensors"):
        pytest.importorskip("safetensors")
    path = tmp_path / name
    WRITERS[name](path)
    whole = path.read_bytes()
    path.unlink()
    program = start(ENDLESS, path)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    program.kill()
    program.communicate()
    assert killed(program.returncode)
    assert path.read_bytes() == whole
    others = [other for other in names(tmp_path) if other != name]
    assert all(other.startswith(f".{name}.") and other.endswith(".part") for other in others)


def test_an_interrupted_block_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(error: type[BaseException]) -> None:
        with atomic(path) as file:
            file.write(b"half")
            raise error

    for error in (KeyboardInterrupt, SystemExit, MemoryError, RuntimeError):
        with pytest.raises(error):
            fail(error)
        assert path.read_bytes() == b"old"
        assert names(tmp_path) == ["a"]


def test_command_without_faults(tmp_path: Path) -> None:
    """The limits above are what fails, not the commands."""
    torch.save({"0.weight": torch.zeros(30_000)}, tmp_path / "a.pth")
    status, _, err = run(
        COMMAND, "convert", tmp_path / "a.pth", tmp_path / "b.pth", "--layout", "spconv"
    )
    assert (status, err) == (0, "")
    assert names(tmp_path) == ["a.pth", "b.pth"]
