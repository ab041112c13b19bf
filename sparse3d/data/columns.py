"""Which columns a table without a header may have, told from its size and its values."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_COORDINATE", "advice", "head_of"]

MAX_COORDINATE = 1000.0  # metres; spinning lidars end near 250 m, and a misread file is far beyond
_HEAD = 480 * 512  # bytes looked at: whole rows of every form below
_ROWS = 10_000  # of them, spread over the head
_WORSE = 1.5  # times the step of the best width: another width explains the values
_LAGS = (3, 4, 5, 6)


@dataclass(frozen=True)
class _Form:
    """A way to store points; ``layout`` is its name where `read_points` knows one."""

    words: str
    dtype: str
    columns: int
    layout: str = ""

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return np.dtype(self.dtype).itemsize * self.columns


_FORMS = (
    _Form("4 float32 columns (KITTI: x y z remission)", "<f4", 4, "kitti"),
    _Form("5 float32 columns (nuScenes: x y z intensity ring)", "<f4", 5, "nuscenes"),
    _Form("3 float32 columns (x y z)", "<f4", 3, "xyz"),
    _Form("6 float32 columns (x y z r g b)", "<f4", 6, "xyzrgb"),
    _Form("big-endian float32", ">f4", 4),
    _Form("4 float64 columns", "<f8", 4),
    _Form("3 float64 columns", "<f8", 3),
)


def head_of(path: Path) -> bytes:
    """The bytes of a file that `advice` looks at; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(min(_HEAD, os.fstat(file.fileno()).st_size))
    except OSError:
        return b""


def advice(head: bytes, size: int, tried: str) -> str:
    """Say which forms other than ``tried`` fit a file, likeliest first; "" where none does.

    Args:
        head: The first bytes of the file, all of a small one.
        size: Bytes in the file.
        tried: The layout that did not fit.
    """
    head = head[:_HEAD]
    fitting = [form for form in _FORMS if form.layout != tried and not size % form.width]
    fitting = [form for form in fitting if _believable(form, head)]
    fitting = list(_explained(fitting, head))
    if not fitting:
        return ""
    fits = " or ".join(form.words for form in fitting)
    layouts = [form.layout for form in fitting if form.layout]
    if not layouts:
        return f"the values fit {fits}; convert it first"
    ways = " or ".join(f"--layout {layout}" for layout in layouts)
    named = " or ".join(f"layout={layout!r}" for layout in layouts)
    return f"the values fit {fits}; name the layout ({ways}, in Python read_points with {named})"


def _table(form: _Form, head: bytes) -> npt.NDArray[np.float64]:
    whole = len(head) // form.width * form.width
    rows = np.frombuffer(head[:whole], form.dtype).reshape(-1, form.columns)
    with np.errstate(invalid="ignore"):
        return rows[:: max(1, len(rows) // _ROWS)].astype(np.float64)


def _believable(form: _Form, head: bytes) -> bool:
    """Whether all values lie where the reader of that form wants them."""
    table = _table(form, head)
    places, rest = table[:, :3], table[:, 3:]
    if not len(table) or not np.isfinite(table).all() or np.abs(places).max() > MAX_COORDINATE:
        return False
    if np.abs(places).max() < 1e-3:  # denormals of integers, or of a wrong byte order
        return False
    if rest.size and (rest.min() < 0 or rest.max() > 255):
        return False
    if form.layout == "nuscenes" and (rest[:, 1] != np.floor(rest[:, 1])).any():
        return False
    return form.columns != 4 or bool(rest.max() <= 1)


def _explained(forms: list[_Form], head: bytes) -> Iterator[_Form]:
    """Those whose width repeats in the values, likeliest first.

    Values of one column are alike from row to row: the step from a value to that one row on is
    smallest at the true width.
    """
    values = np.frombuffer(head[: len(head) // 4 * 4], "<f4")
    steps = {lag: _step(values, lag) for lag in _LAGS}
    best = min(steps.values())
    kept = [f for f in forms if f.dtype != "<f4" or steps[f.columns] <= _WORSE * best]
    colors = next((f for f in kept if f.layout == "xyzrgb" and _colored(_table(f, head))), None)
    if colors is not None:
        yield colors
    yield from (form for form in kept if form is not colors)


def _step(values: npt.NDArray[np.float32], lag: int) -> float:
    """Median distance of values that lie ``lag`` apart; 0 where there are none."""
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.abs(values[lag:] - values[:-lag])
    steps = steps[np.isfinite(steps)]
    return float(np.median(steps.astype(np.float64))) if len(steps) else 0.0


def _colored(table: npt.NDArray[np.float64]) -> bool:
    """Whether columns 4 to 6 look like colours, and columns 1 to 3 do not."""
    return _like_colors(table[:, 3:]) and not _like_colors(table[:, :3])


def _like_colors(part: npt.NDArray[np.float64]) -> bool:
    whole = bool((part == np.floor(part)).all()) and part.max() <= 255
    return bool(part.min() >= 0 and (whole or part.max() <= 1))
