"""What long commands say of how far they are."""

from __future__ import annotations

import io
import re
import sys

import pytest

pytest.importorskip("rich")

from rich.console import Console

from sparse3d.data import progress
from sparse3d.data.progress import bar


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    written = io.StringIO()
    screen = Console(file=written, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "Console", lambda **_: screen)
    return written


def test_a_terminal_has_a_bar_that_goes_on_where_it_was(terminal: io.StringIO) -> None:
    with bar("eval", 5, done=2) as shown:
        for note in ("08/000003", "08/000004", "08/000005"):
            shown.step(note)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    last = [line for line in re.split(r"[\r\n]+", plain) if line.strip()][-1]
    assert last.startswith("eval ")
    assert "5/5" in last
    assert last.rstrip().endswith("08/000005")


@pytest.mark.parametrize(("total", "hidden"), [(5, True), (1, False), (0, False)])
def test_nothing_is_shown_where_it_is_asked_or_there_is_one(
    total: int, hidden: bool, terminal: io.StringIO
) -> None:
    with bar("eval", total, hidden=hidden) as shown:
        for _ in range(total):
            shown.step("note")
    assert terminal.getvalue() == ""


def test_a_file_gets_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, *(0.6 * progress._EVERY * count for count in range(1, 20))])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with bar("eval", 5) as shown:
        for count in range(5):
            shown.step(f"scan {count}")
    assert not sys.stderr.isatty()
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert len(lines) < 5
    assert all(re.fullmatch(r"eval: [1-5] of 5  scan [0-4]", line) for line in lines)
