"""The zip that the benchmark takes: labels of sequences 11 to 21, checked before it is done."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sparse3d.data.dataset import Frame, SemanticKITTI
from sparse3d.data.files import atomic
from sparse3d.data.kitti import POINT_BYTES
from sparse3d.data.semantic_kitti import LABEL_MAPS, RAW_NAMES

__all__ = ["check_submission", "entry_of", "write_submission"]

PathLike = str | os.PathLike[str]


def entry_of(frame: Frame) -> str:
    """Name of a scan's labels in the zip."""
    return f"sequences/{frame.sequence:02d}/predictions/{frame.number}.label"


def write_submission(
    path: PathLike, data: SemanticKITTI, folder: Path, step: Callable[[str], None]
) -> None:
    """Pack the labels below a folder and check the zip; it appears whole and right, or not at all.

    Args:
        path: The zip.
        data: The test split.
        folder: Holds ``sequences/11/predictions/000000.label`` and so on.
        step: Called for each scan, twice: packed, checked.

    Raises:
        ValueError: Labels are missing or wrong; one line.
    """
    with atomic(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
            # The benchmark's validator looks for the folders themselves.
            made.writestr("sequences/", b"")
            for number in data.sequences:
                made.writestr(f"sequences/{number:02d}/", b"")
                made.writestr(f"sequences/{number:02d}/predictions/", b"")
            for frame in data.frames:
                source = folder / entry_of(frame)
                if not source.is_file():
                    raise ValueError(f"{source}: must be there, got none; predict it again")
                made.write(source, entry_of(frame))
                step(f"packed {frame.name}")
        file.flush()
        check_submission(file.name, data, step, shown=str(path))


def check_submission(
    path: PathLike, data: SemanticKITTI, step: Callable[[str], None], shown: str = ""
) -> None:
    """Read a submission again: folders, names, number of labels of each scan, raw ids.

    Args:
        path: The zip.
        data: The test split.
        step: Called for each scan.
        shown: Name for messages, where it is not yet the file's own.

    Raises:
        ValueError: It is not what the benchmark takes; one line that names the entry.
    """
    place = shown or str(path)
    with _refusing(f"{place}: must be a zip, got another file"):
        opened = zipfile.ZipFile(path)
    with opened as made:
        entries = {info.filename: info for info in made.infolist()}
        _check_names(place, entries, data)
        legal = np.zeros(2**16, np.bool_)
        legal[list(LABEL_MAPS["official"].forward)] = True
        for frame in data.frames:
            _check_entry(place, made, entries[entry_of(frame)], frame, legal)
            step(f"checked {frame.name}")


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn whatever zipfile and zlib say of a damaged archive into one line."""
    try:
        yield
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{what}: {said}") from None


def _check_names(place: str, entries: Mapping[str, zipfile.ZipInfo], data: SemanticKITTI) -> None:
    folders = {"sequences/"}
    for number in data.sequences:
        folders |= {f"sequences/{number:02d}/", f"sequences/{number:02d}/predictions/"}
    wanted = {entry_of(frame) for frame in data.frames} | folders
    if absent := sorted(wanted - entries.keys()):
        raise ValueError(f"{place}: must hold {absent[0]}, got none ({len(absent)} entries absent)")
    more = sorted(entries.keys() - wanted - {"description.txt"})
    if more:
        raise ValueError(f"{place}: must hold predictions only, got {more[0]}; remove it")


def _check_entry(
    place: str,
    made: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    frame: Frame,
    legal: np.ndarray,
) -> None:
    points = frame.scan.stat().st_size // POINT_BYTES
    if info.file_size != 4 * points:
        raise ValueError(
            f"{place}: {info.filename} must hold {points} labels of 4 bytes, "
            f"got {info.file_size} bytes"
        )
    with _refusing(f"{place}: {info.filename} must be whole, got damaged bytes"):
        labels = np.frombuffer(made.read(info), "<u4")  # reading checks the CRC
    wrong = ~legal[labels & 0xFFFF]
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"{place}: {info.filename} must hold raw ids ({min(RAW_NAMES)} to {max(RAW_NAMES)}), "
            f"got {labels[row] & 0xFFFF} at point {row}; training ids must be mapped back"
        )
