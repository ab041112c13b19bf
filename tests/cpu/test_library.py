"""Finding, checking and choosing inside the native library."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sparse3d.cpu import _library

CSRC = Path(_library.__file__).parent / "csrc"


def test_structs_are_as_large_as_in_c(tmp_path):
    """The two call structs, field by field in order, from the header's own text."""
    header = (CSRC / "conv.h").read_text()
    for structure in (_library.ConvCall, _library.WeightGradCall):
        body = re.search(rf"struct {structure.__name__} {{(.*?)\n}};", header, re.S).group(1)
        body = re.sub(r"//.*", "", body)
        wanted = []
        for declaration in body.split(";"):
            words = declaration.split()
            if not words:
                continue
            pointer = "*" in declaration
            first = 2 if words[0] == "const" else 1
            names = " ".join(words[first:]).replace("*", "").split(",")
            kind = (
                ctypes.c_void_p if pointer else getattr(ctypes, "c_" + words[0].removesuffix("_t"))
            )
            wanted += [kind] * len(names)
        assert [kind for _, kind in structure._fields_] == wanted


def test_a_missing_library_is_one_line(monkeypatch):
    monkeypatch.setattr(_library, "_candidates", lambda: iter(()))
    with pytest.raises(_library.BackendUnavailable, match=r"no libsparse3d_cpu\.so") as error:
        _library._load()
    assert "\n" not in str(error.value)


def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(_library, "ABI_VERSION", _library.ABI_VERSION + 1)
    with pytest.raises(_library.BackendUnavailable, match="must have ABI version"):
        _library._load()


def test_a_file_that_is_no_library_is_refused(monkeypatch, tmp_path):
    fake = tmp_path / _library.FILE
    fake.write_text("not a library")
    monkeypatch.setattr(_library, "_candidates", lambda: iter([fake]))
    with pytest.raises(_library.BackendUnavailable, match="does not load"):
        _library._load()


def test_without_the_library_references_serve():
    script = (
        "from pathlib import Path\n"
        "Path.is_file = lambda self, f=Path.is_file: f(self) and self.suffix != '.so'\n"
        "import torch\n"
        "from sparse3d import _registry\n"
        "from sparse3d.ops.coordinates import unique\n"
        "reason = _registry.load('cpu')\n"
        "assert 'libsparse3d_cpu.so' in reason, reason\n"
        "first, _ = unique(torch.zeros((3, 4), dtype=torch.int32))\n"
        "assert first.tolist() == [0]\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_paths():
    assert "portable" in _library.paths()
    assert _library.default_path() in _library.paths()
    with pytest.raises(ValueError, match="path must be one of"), _library.use_path("abacus"):
        pass
    before = _library.path()
    with _library.use_path("portable"):
        assert _library.path() == _library.PATHS["portable"]
    assert _library.path() == before


def test_a_refusal_is_an_error():
    with pytest.raises(RuntimeError, match="s3d_coordinate_table refused"):
        _library.call("s3d_coordinate_table", 1, None, 0, 7, None)


def test_threads_follow_torch():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert _library.threads() == 1
    finally:
        torch.set_num_threads(before)
