"""A labelled scan from above, as a PNG."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sparse3d.data.files import atomic
from sparse3d.data.semantic_kitti import COLORS, RAW_NAMES, colors_of

__all__ = ["draw_from_above", "write_picture"]

_PIXELS = 1100
_INK = "#e8e8ee"
_PAPER = "#14151a"
# SemanticKITTI shows pavements as (75, 0, 75): on a dark page that needs light behind it.
_FLOOR = 0.35


def write_picture(
    path: str | os.PathLike[str],
    points: npt.NDArray[np.floating],
    labels: npt.NDArray[np.uint32],
    title: str,
) -> None:
    """Write a bird's-eye view: the highest point of each pixel in its class colour.

    Args:
        path: The PNG.
        points: ``[N, >=3]``, x forward, y left, z up.
        labels: Raw SemanticKITTI ids, one per point.
        title: One line above the picture.
    """
    classes = labels & np.uint32(0xFFFF)
    ids, counts = np.unique(classes, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    entries = [
        (RAW_NAMES.get(int(ids[i]), str(ids[i])), COLORS.get(int(ids[i]), (128, 128, 128)),
         int(counts[i])) for i in order
    ]  # fmt: skip
    draw_from_above(path, points, colors_of(classes), entries, title, sensor=True)


def draw_from_above(
    path: str | os.PathLike[str],
    points: npt.NDArray[np.floating],
    colors: npt.NDArray[np.uint8],
    entries: Sequence[tuple[str, tuple[int, int, int], int]],
    title: str,
    *,
    middle: tuple[float, float] = (0.0, 0.0),
    reach: float | None = None,
    sensor: bool = False,
) -> None:
    """Write a view from above with any colours and legend.

    Args:
        path: The PNG.
        points: ``[N, >=3]``, z up.
        colors: uint8 ``[N, 3]``.
        entries: Name, colour and number of points of each line of the legend.
        title: One line above the picture.
        middle: x and y of the middle.
        reach: Half the width; if not given, what nearly all points need, from 10 to 80 m.
        sensor: Mark the origin as the sensor; the unit then is the metre.
    """
    place = np.array(points[:, :3], np.float64)
    place[:, :2] -= middle
    if reach is None:
        reach = _reach(place)
    figure = Figure(figsize=(10.6, 8.4), dpi=110, facecolor=_PAPER)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.03, 0.735, 0.915), facecolor=_PAPER)
    axes.imshow(_raster(place, colors, reach), extent=(-reach, reach, -reach, reach),
                interpolation="nearest")  # fmt: skip
    if sensor:
        axes.plot(0, 0, marker="^", color=_INK, markersize=7, linestyle="none")
        axes.annotate("sensor", (0, 0), xytext=(8, -4), textcoords="offset points", color=_INK,
                      fontsize=8)  # fmt: skip
    length = _round_length(reach)
    left, low = -0.94 * reach, -0.94 * reach
    axes.plot([left, left + length], [low, low], color=_INK, linewidth=3, solid_capstyle="butt")
    axes.text(left + length / 2, low + 0.02 * reach, f"{length:g}" + " m" * sensor, color=_INK,
              ha="center", va="bottom", fontsize=9)  # fmt: skip
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#3a3c46")
    # A title has file names in it: dollars are no formula, bytes outside UTF-8 no letters.
    title = title.encode("utf-8", "replace").decode("utf-8")
    figure.text(0.02, 0.962, title, color=_INK, fontsize=11, parse_math=False)
    handles = [
        Line2D([], [], marker="s", linestyle="none", markersize=8, color=_shown(color),
               markeredgecolor=_INK, markeredgewidth=0.6, label=f"{name}  {count:,}")
        for name, color, count in entries
    ]  # fmt: skip
    if handles:
        figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.765, 0.95),
                      frameon=False, labelcolor=_INK, fontsize=9.5,
                      title=f"{len(points):,} points", alignment="left",
                      ).get_title().set_color(_INK)  # fmt: skip
    with atomic(Path(path)) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # drawn as an empty box
        figure.savefig(file, format="png", facecolor=_PAPER)


def _reach(points: npt.NDArray[np.floating]) -> float:
    """Half the width of the view: nearly all points, between 10 and 80 m."""
    if len(points) == 0:
        return 20.0
    away = np.abs(points[:, :2]).max(axis=1)
    return float(np.clip(np.percentile(away, 96) * 1.08, 10, 80))


def _round_length(reach: float) -> float:
    power = 10.0 ** math.floor(math.log10(0.3 * reach))
    return next(step * power for step in (5, 2, 1) if step * power <= 0.3 * reach)


def _raster(
    points: npt.NDArray[np.floating], colors: npt.NDArray[np.uint8], reach: float
) -> npt.NDArray[np.uint8]:
    image = np.empty((_PIXELS, _PIXELS, 3), np.uint8)
    image[:] = tuple(int(_PAPER[i : i + 2], 16) for i in (1, 3, 5))
    scale = _PIXELS / (2 * reach)
    column = np.floor((points[:, 0] + reach) * scale).astype(np.int64)
    row = np.floor((reach - points[:, 1]) * scale).astype(np.int64)
    edge = _PIXELS - 7  # the largest dot stays inside
    inside = (column >= 0) & (column < edge) & (row >= 0) & (row < edge)
    order = np.flatnonzero(inside)[np.argsort(points[inside, 2], kind="stable")]
    shade = _bright(colors[order])
    # Two by two pixels a point at least, or far rings vanish; more where there are few points.
    dot = int(np.clip(_PIXELS / (2 * math.sqrt(max(len(order), 1))), 2, 7))
    for down in range(dot):
        for right in range(dot):
            image[row[order] + down, column[order] + right] = shade
    return image


def _bright(colors: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Lift dark colours so that they show on the page."""
    value = colors.astype(np.float64)
    luma = value @ [0.299, 0.587, 0.114] / 255
    lift = np.clip(_FLOOR - luma, 0, None)[..., None]
    return (value + (255 - value) * lift).astype(np.uint8)


def _shown(shade: tuple[int, int, int]) -> tuple[float, float, float]:
    color = _bright(np.array([shade], np.uint8))[0] / 255
    return float(color[0]), float(color[1]), float(color[2])
