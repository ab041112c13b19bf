"""Compiled kernels on disk: what is found again, and what never fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparse3d.cuda import _cache, _nvrtc, _shader
from sparse3d.cuda._cache import Cache, key, user_folder
from sparse3d.metal._shader import library


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "folder")
    assert cache.get("a") is None
    cache.put("a", b"code")
    assert cache.get("a") == b"code"
    assert Cache(tmp_path / "deep" / "folder").get("a") == b"code"
    assert [file.name for file in cache.folder.iterdir()] == ["a"]


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 200])
def test_damaged_files_are_not_used_and_are_replaced(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path)
    cache.put("a", b"code" * 40)
    (tmp_path / "a").write_bytes(damage)
    assert cache.get("a") is None
    cache.put("a", b"code" * 40)
    assert cache.get("a") == b"code" * 40


def test_a_flipped_bit_is_seen(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("a", b"code" * 40)
    whole = bytearray((tmp_path / "a").read_bytes())
    whole[-1] ^= 1
    (tmp_path / "a").write_bytes(whole)
    assert cache.get("a") is None


def test_folders_that_cannot_be_written_are_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a file where the folder should be")
    for cache in (Cache(file), Cache(file / "below"), Cache(None)):
        cache.put("a", b"code")
        assert cache.get("a") is None


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(_cache.Path, "replace", fail)
    Cache(tmp_path).put("a", b"code")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_follows_the_convention(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_folder() == tmp_path / "sparse3d" / "cubin"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_folder() == tmp_path / ".cache" / "sparse3d" / "cubin"


def test_a_user_without_a_home_has_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(_cache.Path, "home", homeless)
    assert user_folder() is None


def test_keys_tell_everything_apart() -> None:
    parts = ("text", "sm_90", "13.0", "1.0")
    others = [(*parts[:i], parts[i] + "x", *parts[i + 1 :]) for i in range(4)]
    assert len({key(*p) for p in (parts, *others, ("texts", "m_90", "13.0", "1.0"))}) == 6


class Counting:
    """A compiler that counts, and knows one version."""

    def __init__(self, version: str = "13.0") -> None:
        self.version, self.count = version, 0

    def target(self, capability: int) -> str:
        return f"sm_{capability}"

    def compile(self, text: str, target: str) -> bytes:
        self.count += 1
        return f"{target} {len(text)}".encode()


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    scan, pool = library("scan"), library("pool", SP_ELEM="half")
    first, second, newer = Counting(), Counting(), Counting("13.1")
    for compiler in (first, second, newer):
        launcher = _shader.CudaLauncher(None, compiler, Cache(tmp_path))
        images = [launcher.image(scan, 90), launcher.image(pool, 90), launcher.image(scan, 80)]
        assert len(set(images)) == 3
    assert (first.count, second.count, newer.count) == (3, 0, 3)


def test_importing_the_library_brings_no_cuda() -> None:
    code = (
        "import sys, sparse3d, sparse3d.nn, sparse3d.pointops; "
        "print([m for m in sys.modules if m.startswith(('sparse3d.cuda', 'sparse3d.metal'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nvrtc_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_nvrtc, "_files", lambda major: iter(["libno_such_nvrtc.so"]))
    with pytest.raises(ImportError, match="pip install nvidia-cuda-nvrtc"):
        _nvrtc.compiler.__wrapped__()
