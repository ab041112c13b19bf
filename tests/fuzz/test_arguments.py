"""The command line under arguments that nobody meant: status 2 and words, no traceback, no file."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.commands import names
from fuzz.bytes_of import EFFORTS, fuzz, within
from hypothesis import strategies as st

pytest.importorskip("typer")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

from typer.testing import CliRunner

from sparse3d.cli import app

WORDS = [
    "segment", "convert", "doctor", "--out", "--config", "--checkpoint", "--device", "--seed",
    "--report", "--truth", "--drop-invalid", "--max-remission", "--layout", "--reverse-axes", "-",
    "--", "", "\0", "a.bin", "a.label", "a.pth", "b.pth", "b.safetensors", ".", "..", "/dev/null",
    "/no/such/place", "-1", "0", "nan", "inf", "1e309", "99999999999999999999", "cpu", "cuda",
    "demo", "../../demo", "--root", "--workers", "--start", "--check", "--predictions",
    "--sequences", "--views", "--label-map", "--labels", "--save", "a.html", "--viewer", "--most",
    "--fresh", "0,8", "minkowski", "\u00e9\ud83d", "\x1b[31m", "x" * 5000,
]  # fmt: skip
ARGUMENTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=7)


@pytest.mark.parametrize("seconds", EFFORTS)
def test_arguments(seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.bin").write_bytes(b"\xff" * 33)
    (tmp_path / "a.label").write_bytes(b"\xff" * 33)
    (tmp_path / "a.pth").write_bytes(b"\xff" * 33)

    def check(command: str, arguments: list[str]) -> None:
        with within(30):
            result = CliRunner().invoke(app, [command, *arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in (0, 2), result.output
        assert result.exit_code == 2 or "--help" in arguments or not arguments
        assert "Traceback" not in result.output
        errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        assert result.exit_code == 0 or errors or "Error" in result.stderr
        assert names(tmp_path) == ["a.bin", "a.label", "a.pth"]

    commands = st.sampled_from(["segment", "convert", "eval", "submit", "train", "view"])
    fuzz(check, seconds, 300, command=commands, arguments=ARGUMENTS)
