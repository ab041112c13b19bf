"""SemanticKITTI's folders as a torch data set.

ROOT/sequences/08/velodyne/000000.bin     scans
ROOT/sequences/08/labels/000000.label     labels, but not of sequences 11 to 21
ROOT/sequences/08/poses.txt, calib.txt    not read
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from sparse3d.data.kitti import Scan, ScanError, read_labels, read_scan

__all__ = ["SCAN_COUNTS", "SPLITS", "Frame", "Sample", "SemanticKITTI"]

PathLike = str | os.PathLike[str]

SPLITS: Mapping[str, tuple[int, ...]] = {
    "train": (0, 1, 2, 3, 4, 5, 6, 7, 9, 10),
    "val": (8,),
    "test": tuple(range(11, 22)),
}
"""Sequences of the official splits; ``test`` has no public labels."""

SCAN_COUNTS = (
    4541, 1101, 4661, 801, 271, 2761, 1101, 1101, 4071, 1591, 1201,
    921, 1061, 3281, 631, 1901, 1731, 491, 1801, 4981, 831, 2721,
)  # fmt: skip
"""Scans in each of the 22 sequences of the benchmark."""

_NUMBER = re.compile(r"\d{6}")


@dataclass(frozen=True)
class Frame:
    """Where one scan lies.

    Attributes:
        sequence: 0 to 21.
        number: Six digits.
        scan: The ``.bin``.
        label: The ``.label``, whether or not it is there.
    """

    sequence: int
    number: str
    scan: Path
    label: Path

    @property
    def name(self) -> str:
        """As ``08/000123``."""
        return f"{self.sequence:02d}/{self.number}"


@dataclass(frozen=True)
class Sample:
    """One scan with its labels.

    Attributes:
        name: As ``08/000123``.
        scan: Points and where they lie in the file.
        file_labels: uint32 ``[scan.total]``, the raw label of each point of the file, or None.
    """

    name: str
    scan: Scan
    file_labels: npt.NDArray[np.uint32] | None

    @property
    def labels(self) -> npt.NDArray[np.uint32] | None:
        """uint32 ``[N]``, the raw label of each of ``points``."""
        return None if self.file_labels is None else self.file_labels[self.scan.rows]

    @property
    def points(self) -> npt.NDArray[np.float32]:
        """float32 ``[N, 4]``: x, y, z, remission."""
        return self.scan.points


class SemanticKITTI(Dataset[Sample]):
    """Scans of a split, in the order of sequences and numbers.

    Labels are raw (class in the low 16 bits, instance in the high): a `LabelMap` makes training ids
    of them, and which one is the user's choice, since repositories disagree.

    Args:
        root: The folder that holds ``sequences`` (or ``dataset/sequences``).
        split: ``train``, ``val`` or ``test``.
        sequences: Other sequences than the split's.
        labels: Read labels; by default for ``train`` and ``val``.
        drop_invalid: Leave out points with NaN or infinite values instead of raising.
        incomplete: Leave out sequences that are not there, as long as one is.

    Raises:
        ValueError: The split is unknown, or a folder of it is missing or empty; one line.
    """

    def __init__(
        self,
        root: PathLike,
        split: str = "val",
        *,
        sequences: Sequence[int] | None = None,
        labels: bool | None = None,
        drop_invalid: bool = False,
        incomplete: bool = False,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {list(SPLITS)}, got {split!r}")
        chosen = SPLITS[split] if sequences is None else tuple(sequences)
        wrong = [number for number in chosen if not 0 <= number < len(SCAN_COUNTS)]
        if wrong or not chosen or len(set(chosen)) != len(chosen):
            raise ValueError(f"sequences must be different numbers from 0 to 21, got {chosen}")
        self.split = split
        self.labels = split != "test" if labels is None else labels
        self.drop_invalid = drop_invalid
        self.folder = _sequences(Path(root))
        here = tuple(n for n in chosen if (self.folder / f"{n:02d}" / "velodyne").is_dir())
        self.absent = tuple(n for n in chosen if n not in here) if incomplete and here else ()
        """Sequences that were left out."""
        self.sequences = chosen = here if self.absent else chosen
        self.frames: list[Frame] = []
        notes: list[str] = []
        for number in chosen:
            found = _frames(self.folder, number, split)
            if len(found) != SCAN_COUNTS[number]:
                notes.append(
                    f"sequence {number:02d} holds {len(found)} scans, the benchmark's "
                    f"{SCAN_COUNTS[number]}: the numbers are not those of the official split"
                )
            self.frames += found
        self.notes = tuple(notes)
        """One line for each sequence that is not as long as the benchmark's."""

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, index: int) -> Sample:
        """Read a scan and its labels.

        Raises:
            ScanError: One of them is missing or not what it should be; one line.
        """
        frame = self.frames[index]
        scan = read_scan(frame.scan, drop_invalid=self.drop_invalid)
        labels = read_labels(frame.label, scan.total) if self.labels else None
        return Sample(frame.name, scan, labels)

    def __repr__(self) -> str:
        names = ", ".join(f"{number:02d}" for number in self.sequences)
        return f"SemanticKITTI({self.folder.parent}, {self.split}: {names}; {len(self)} scans)"


def _sequences(root: Path) -> Path:
    """The folder of sequences, under either of the two names that archives give it."""
    for folder in (root / "sequences", root / "dataset" / "sequences", root):
        if folder.is_dir() and (folder.name == "sequences"):
            return folder
    if not root.exists():
        raise ValueError(f"{root}: must be SemanticKITTI's folder, got nothing of that name")
    raise ValueError(
        f"{root}: must hold the folder sequences, got none; name the folder above sequences/00"
    )


def _frames(folder: Path, number: int, split: str) -> list[Frame]:
    place = folder / f"{number:02d}"
    scans = place / "velodyne"
    if not scans.is_dir():
        there = sorted(p.name for p in folder.iterdir() if (p / "velodyne").is_dir())
        way = "name those that you have with sequences (--sequences)"
        if split == "test":
            way = "leave out those that are not there with incomplete (--incomplete)"
        raise ValueError(
            f"{scans}: must be there for split {split!r}, got sequences {there}; {way}"
        )
    names = sorted(entry.name for entry in os.scandir(scans) if entry.name.endswith(".bin"))
    if not names:
        raise ValueError(f"{scans}: must hold scans, got a folder without .bin files")
    odd = [name for name in names if not _NUMBER.fullmatch(name[:-4])]
    if odd:
        raise ScanError(f"{scans / odd[0]}: must be named by six digits as 000000.bin")
    return [
        Frame(number, name[:-4], scans / name, place / "labels" / f"{name[:-4]}.label")
        for name in names
    ]
