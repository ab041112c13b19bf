"""A scene without a browser: a PNG from above, or Open3D's window."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from sparse3d.data.picture import draw_from_above
from sparse3d.doctor import install_line
from sparse3d.view.scene import Scene

__all__ = ["open_window", "write_still"]

_RAMP = np.array(
    [(44, 52, 124), (38, 104, 178), (32, 158, 172), (88, 196, 120), (214, 214, 84), (250, 158, 58),
     (214, 62, 48)], np.float64,
)  # fmt: skip
"""The page's own colours from low to high."""


def write_still(path: str | os.PathLike[str], scene: Scene) -> None:
    """Write a PNG from above: by class where there are classes, else by colour, else by height."""
    about = scene.describe()
    x, y = about["home"]["target"][:2]
    lidar = bool(about["ranges"])
    entries = [
        (entry["name"], tuple(entry["color"]), entry["count"])
        for entry in (about["legends"][0]["entries"] if about["legends"] else ())
    ]
    draw_from_above(
        path,
        scene.points,
        _colors(scene),
        entries,
        f"{about['title']}, {about['about'][0]}",
        middle=(float(x), float(y)),
        reach=None if lidar else 1.1 * _half_width(scene, (x, y)),
        sensor=lidar,
    )


def open_window(scene: Scene) -> None:
    """Show the scene in Open3D's window until it is closed.

    Raises:
        ValueError: Open3D is not installed.
    """
    try:
        open3d: Any = import_module("open3d")
    except ImportError:
        raise ValueError(
            f"viewer must be installed, got 'open3d' without open3d: {install_line('view')}; or "
            "use --viewer html"
        ) from None
    cloud = open3d.geometry.PointCloud()
    cloud.points = open3d.utility.Vector3dVector(scene.points.astype(np.float64))
    cloud.colors = open3d.utility.Vector3dVector(_colors(scene) / 255.0)
    open3d.visualization.draw_geometries([cloud], window_name=scene.cloud.path.name)


def _colors(scene: Scene) -> npt.NDArray[np.uint8]:
    classes = scene.classes or scene.true_classes
    if classes is not None:
        return np.array(classes.colors, np.uint8)[classes.codes]
    colors = scene.cloud.colors()
    if colors is not None:
        return colors[scene.rows]
    low, high = np.percentile(scene.points[:, 2], [2, 98])
    part = np.clip((scene.points[:, 2] - low) / max(high - low, 1e-9), 0, 1)
    stops = np.linspace(0, 1, len(_RAMP))
    return np.stack([np.interp(part, stops, column) for column in _RAMP.T], axis=1).astype(np.uint8)


def _half_width(scene: Scene, middle: tuple[float, float]) -> float:
    away = np.abs(scene.points[:, :2] - np.array(middle)).max(axis=1)
    return max(float(np.percentile(away, 98)), 1e-3)
