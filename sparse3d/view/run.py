"""What `sparse3d view` does once its arguments are parsed."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sparse3d._atomic import check_file
from sparse3d.data.cloud import PointCloud
from sparse3d.data.kitti import read_labels
from sparse3d.data.readers import read_points, stem_of
from sparse3d.view.page import write_page
from sparse3d.view.scene import Scene
from sparse3d.view.still import open_window, write_still

__all__ = ["Options", "run"]

VIEWERS = ("html", "open3d")


@dataclass
class Options:
    """Arguments of `sparse3d view`.

    Attributes:
        scan: A file that `read_points` knows.
        labels: Labels to colour by: a ``.label`` file, or a folder of them.
        truth: Labels to compare with, likewise.
        save: Write this ``.html`` or ``.png`` instead of opening a window.
        viewer: ``html`` or ``open3d``.
        layout: Columns of a ``.bin`` that is not KITTI's.
        drop_invalid: Leave out points with NaN or infinite values.
        most: Thin out clouds of more points.
    """

    scan: Path
    labels: Path | None = None
    truth: Path | None = None
    save: Path | None = None
    viewer: str = "html"
    layout: str | None = None
    drop_invalid: bool = False
    most: int = 3_000_000


def run(options: Options) -> int:
    """Show the scan and return the exit status: 0, or 2 after an error."""
    try:
        _check(options)
        scene = _scene(options)
        for note in (*scene.cloud.notes, *scene.notes):
            sys.stderr.write(f"warning: {note}\n")
        _show(scene, options)
    except (ValueError, OSError) as error:
        said = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            said = f"{error.filename}: {error.strerror}; name another place with --save"
        sys.stderr.write(f"error: {' '.join(said.split())}\n")
        return 2
    return 0


def _check(options: Options) -> None:
    """Refuse what cannot be done before anything is read."""
    if options.viewer not in VIEWERS:
        raise ValueError(f"viewer must be one of {', '.join(VIEWERS)}, got {options.viewer!r}")
    save = options.save
    if save is None:
        return
    if options.viewer != "html":
        raise ValueError(f"save must be left out with --viewer {options.viewer}, got {save}")
    if save.suffix.lower() not in (".html", ".png"):
        raise ValueError(f"save must end in .html or .png, got {save}")
    for taken in (options.scan, options.labels, options.truth):
        if taken is not None and taken.resolve() == save.resolve():
            raise ValueError(f"save must not be one of the files read, got {save}")
    check_file("--save", save)


def _scene(options: Options) -> Scene:
    cloud = read_points(options.scan, layout=options.layout, drop_invalid=options.drop_invalid)
    labels, truth = (_labels(place, cloud) for place in (options.labels, options.truth))
    return Scene(cloud, labels, truth, options.most)


def _labels(place: Path | None, cloud: PointCloud) -> npt.NDArray[np.uint32] | None:
    if place is None:
        return None
    path = place / f"{stem_of(cloud.path)}.label" if place.is_dir() else place
    return read_labels(path, cloud.total)


def _show(scene: Scene, options: Options) -> None:
    if options.viewer == "open3d":
        open_window(scene)
        return
    save = options.save
    if save is not None:
        (write_still if save.suffix.lower() == ".png" else write_page)(save, scene)
        sys.stdout.write(f"wrote {save}\n")
        return
    folder = Path(tempfile.mkdtemp(prefix="sparse3d-view-"))  # the browser reads it after we ended
    page = folder / f"{stem_of(scene.cloud.path)}.html"
    write_page(page, scene)
    if webbrowser.open(page.as_uri()):
        sys.stderr.write(f"opened {page}\n")
    else:
        sys.stderr.write(f"no browser was found here: open {page}, or name a place with --save\n")
