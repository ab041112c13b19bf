"""The page: a template of ours filled with a scene; one file that needs nothing else."""

from __future__ import annotations

import base64
import html
import json
import os
from pathlib import Path

import numpy as np

from sparse3d.data.files import atomic
from sparse3d.view.scene import Scene

__all__ = ["page", "write_page"]

_FOLDER = Path(__file__).parent
_SCRIPTS = ("camera.js", "points.js", "panel.js", "main.js")


def write_page(path: str | os.PathLike[str], scene: Scene) -> None:
    """Write a self-contained page; the file appears whole or not at all.

    Args:
        path: The ``.html``.
        scene: What it shows.
    """
    text = page(scene)
    with atomic(path) as file:
        file.write(text.encode("utf-8", "replace"))  # the file's name may be any bytes


def page(scene: Scene) -> str:
    """The page's text."""
    about = scene.describe()
    # No "<" may end the script element that the JSON stands in.
    data = json.dumps(about, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    arrays = "\n".join(_array(name, values) for name, values in scene.arrays().items())
    parts = {
        "TITLE": html.escape(f"{about['title']} \u2013 sparse3d view"),
        "STYLE": _read("page.css"),
        "SCRIPT": "\n".join(_read(name) for name in _SCRIPTS),
        "SCENE": data,
        "ARRAYS": arrays,
    }
    text = _read("page.html")
    pieces = text.split("%%")  # text, name, text, ...: what is filled in is not searched again
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _array(name: str, values: np.ndarray) -> str:
    little = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"))
    text = base64.b64encode(little.tobytes()).decode("ascii")
    kind = f'data-array="{name}" data-kind="{values.dtype}"'
    return f'<script type="application/octet-stream" {kind}>{text}</script>'
