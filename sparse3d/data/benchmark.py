"""Scores of a split, scan by scan, in files that only grow: an interruption costs one scan.

Each scan gives one line with its confusion counts, whole numbers. The result is their sum, so it
does not matter who counted what, in which order, or how often the work was interrupted.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import DataLoader, Dataset

from sparse3d.data.config import SegmentConfig
from sparse3d.data.dataset import Frame, Sample, SemanticKITTI
from sparse3d.data.files import atomic
from sparse3d.data.metrics import Confusion
from sparse3d.data.semantic_kitti import CLASS_NAMES

__all__ = [
    "Ledger",
    "Record",
    "Samples",
    "Tried",
    "digest",
    "identity",
    "leave_signals",
    "report",
]

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Record:
    """What one scan contributes.

    Attributes:
        scan: As ``08/000123``.
        cells: Triples (predicted, true, points) of training ids.
        error: Why the scan could not be scored; it then has no cells.
    """

    scan: str
    cells: tuple[tuple[int, int, int], ...] = ()
    error: str = ""

    @classmethod
    def of(
        cls, scan: str, predicted: npt.NDArray[np.generic], true: npt.NDArray[np.generic]
    ) -> Record:
        """Count one scan; both arrays hold training ids."""
        table = Confusion(CLASS_NAMES)
        table.add(predicted, true)
        rows, columns = np.nonzero(table.counts)
        counts = table.counts[rows, columns]
        cells = zip(rows.tolist(), columns.tolist(), counts.tolist(), strict=True)
        return cls(scan, tuple(cells))

    def add_to(self, table: Confusion) -> None:
        """Count this scan in a table of all."""
        for predicted, true, points in self.cells:
            table.counts[predicted, true] += points


class Ledger:
    """Records of one evaluation, kept in a folder.

    Args:
        folder: Where they lie; made if absent.
        key: What is evaluated. A folder that holds records of something else is refused.
        part: Name of this process's own file.
        keep: Whether records that are there already count; otherwise they are removed.

    Raises:
        ValueError: The folder holds another evaluation; one line that names what differs.
    """

    def __init__(self, folder: Path, key: Mapping[str, Any], part: str, keep: bool = True) -> None:
        self.folder = folder
        self._own = folder / f"scans-{part}.jsonl"
        self._key = json.loads(json.dumps(key))
        self._keep = keep

    def claim(self) -> None:
        """Mark the folder as this evaluation's; for one process, before any other looks in."""
        self.folder.mkdir(parents=True, exist_ok=True)
        note = self.folder / "evaluation.json"
        if not self._keep:
            for path in self.folder.glob("scans-*.jsonl"):
                path.unlink()
        elif note.exists():
            before = _noted(note)
            differs = [name for name in self._key if before.get(name) != self._key[name]]
            if differs:
                name = differs[0]
                raise ValueError(
                    f"{self.folder}: must hold the same evaluation, got one of {name} "
                    f"{_short(before.get(name))} instead of {_short(self._key[name])}; name "
                    "another --out, or begin anew with --fresh"
                )
        with atomic(note) as file:
            file.write(json.dumps(self._key, indent=1).encode())

    def drop(self) -> None:
        """Take away what `claim` and `add` have left here."""
        for path in (self.folder / "evaluation.json", *self.folder.glob("scans-*.jsonl")):
            path.unlink(missing_ok=True)

    def records(self) -> dict[str, Record]:
        """All records so far, by scan; a scored scan beats an error."""
        found: dict[str, Record] = {}
        for path in sorted(self.folder.glob("scans-*.jsonl")):
            for line in path.read_text("utf-8", errors="replace").splitlines():
                record = _parse(line)
                if record and (record.scan not in found or not record.error):
                    found[record.scan] = record
        return found

    def add(self, record: Record) -> None:
        """Append one record; when this returns, killing the process does not lose it."""
        line = json.dumps({"scan": record.scan, "cells": record.cells, "error": record.error})
        with self._own.open("ab") as file:
            # A killed process may have left half a line.
            file.write(("" if _ends_line(self._own) else "\n").encode() + line.encode() + b"\n")


def _noted(path: Path) -> dict[str, Any]:
    """What a folder says it is the evaluation of."""
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError):
        raise ValueError(
            f"{path}: must say what is evaluated, got a damaged file; begin anew with --fresh"
        ) from None


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return True
        file.seek(size - 1)
        return file.read(1) == b"\n"


def _parse(line: str) -> Record | None:
    """A record, or None for half a line and for a damaged one: its scan is counted again."""
    try:
        entry = json.loads(line)
        cells = tuple((int(p), int(t), int(n)) for p, t, n in entry["cells"])
        classes = range(len(CLASS_NAMES))
        if not all(p in classes and t in classes and n > 0 for p, t, n in cells):
            return None
        return Record(entry["scan"], cells, entry["error"])
    except (ValueError, KeyError, TypeError):
        return None


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def digest(path: PathLike) -> str:
    """SHA-256 of a file."""
    made = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            made.update(block)
    return made.hexdigest()


def identity(config: SegmentConfig) -> dict[str, Any]:
    """All of a recipe that changes its numbers, as JSON has it."""
    table = asdict(config)
    for name in ("name", "about", "weights"):
        table.pop(name)
    return dict(json.loads(json.dumps(table)))


@dataclass(frozen=True)
class Tried:
    """A scan that was read, or why it was not."""

    frame: Frame
    sample: Sample | None
    error: str = ""


class Samples(Dataset[Tried]):
    """Some scans of a data set, read by workers; a broken one is an entry, not the end.

    Args:
        data: The split.
        indices: Which of its scans.
    """

    def __init__(self, data: SemanticKITTI, indices: Sequence[int]) -> None:
        self._data, self._indices = data, indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Tried:
        place = self._indices[index]
        frame = self._data.frames[place]
        try:
            return Tried(frame, self._data[place])
        except (ValueError, OSError) as error:
            return Tried(frame, None, " ".join(str(error).split()))

    def stream(self, workers: int) -> Iterator[Tried]:
        """In order, read ahead by processes."""
        return iter(
            DataLoader(self, batch_size=None, num_workers=workers, worker_init_fn=leave_signals)
        )


def leave_signals(worker: int) -> None:
    """Ctrl-C reaches workers too; the process that feeds on them decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def report(table: Confusion, records: Mapping[str, Record]) -> dict[str, Any]:
    """The numbers of an evaluation, as JSON has them."""
    iou = table.iou()
    present = table.present()
    broken = {name: record.error for name, record in records.items() if record.error}
    return {
        "miou": table.mean(),
        "miou_present": table.mean_present() if present else None,
        "present": len(present),
        "accuracy": table.accuracy(),
        "iou": {table.names[i]: float(iou[i]) for i in table.scored},
        "scans": len(records) - len(broken),
        "points": int(table.counts.sum()),
        "broken": broken,
        "counts": table.counts.tolist(),
    }
