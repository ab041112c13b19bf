"""What `sparse3d eval` does once its arguments are parsed, and what it prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from sparse3d.data.benchmark import (
    Ledger,
    Record,
    Samples,
    Tried,
    digest,
    identity,
    report,
)
from sparse3d.data.config import load_config
from sparse3d.data.confusion_picture import write_confusion
from sparse3d.data.dataset import Frame, SemanticKITTI
from sparse3d.data.files import alone_in, atomic, check_folder
from sparse3d.data.kitti import ScanError, read_labels
from sparse3d.data.metrics import Confusion
from sparse3d.data.progress import bar
from sparse3d.data.segment import Segmenter, choose_device
from sparse3d.data.semantic_kitti import CLASS_NAMES, LABEL_MAPS, LabelMap
from sparse3d.data.team import Team, run_as_team
from sparse3d.data.views import parse_views

__all__ = ["EvalOptions", "evaluate"]


@dataclass
class EvalOptions:
    """Arguments of `sparse3d eval`.

    Attributes:
        root: SemanticKITTI's folder.
        config: YAML file or name of a recipe.
        checkpoint: Weights, or None for those that ship with the recipe.
        predictions: Score the labels in this folder instead of a network's.
        split: ``train`` or ``val``.
        sequences: Other sequences than the split's.
        label_map: ``official``, or another repository's.
        views: Number of looks at a scan; the recipe's if 0.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        out: Folder of the results.
        workers: Processes that read scans ahead.
        drop_invalid: Points with NaN or infinite values count as missed instead of being an error.
        strict: Stop at the first broken scan.
        fresh: Forget what an interrupted evaluation has counted.
    """

    root: Path
    config: str = "demo"
    checkpoint: Path | None = None
    predictions: Path | None = None
    split: str = "val"
    sequences: Sequence[int] = ()
    label_map: str = "official"
    views: int = 0
    device: str = "auto"
    out: Path = Path("out/eval")
    workers: int = 0
    drop_invalid: bool = False
    strict: bool = False
    fresh: bool = False


def evaluate(options: EvalOptions) -> int:
    """Score a split, print and write the numbers; the exit status is 0, or 2 after any error."""
    return run_as_team(lambda team: _evaluate(options, team), "the same command goes on")


def _evaluate(options: EvalOptions, team: Team) -> int:
    known = _label_map(options.label_map)
    check_folder("--out", options.out)
    if options.split == "test" and not options.sequences:
        raise ValueError("split must have labels (train or val), got 'test'; see sparse3d submit")
    data = SemanticKITTI(
        options.root, options.split, sequences=options.sequences or None, labels=True,
        drop_invalid=options.drop_invalid,
    )  # fmt: skip
    judge = _Judge(options, known, team)
    if judge.folder is not None:
        _check_predictions(judge.folder, data)
    with alone_in(options.out) if team.rank == 0 else nullcontext():
        return _score(options, judge, data, team)


def _score(options: EvalOptions, judge: _Judge, data: SemanticKITTI, team: Team) -> int:
    ledger = _ledger(options, judge, data, team)
    done = {name for name, record in ledger.records().items() if not record.error}
    if team.rank == 0:
        for note in data.notes:
            _say(f"warning: {note}")
        if done:
            _say(f"{len(done)} of {len(data)} scans are counted already in {options.out}")
    records = _count(data, judge, ledger, done, options, team)
    return _finish(data, records, ledger, options, team)


def _label_map(name: str) -> LabelMap:
    if name not in LABEL_MAPS:
        raise ValueError(f"label_map must be one of {list(LABEL_MAPS)}, got {name!r}")
    return LABEL_MAPS[name]


class _Judge:
    """Gives the record of a scan: by a network, or by labels that lie in a folder."""

    def __init__(self, options: EvalOptions, known: LabelMap, team: Team) -> None:
        self.known = known
        self.folder = options.predictions
        self.key: dict[str, Any] = {"label_map": known.name}
        if self.folder is not None:
            if not self.folder.is_dir():
                raise ValueError(f"{self.folder}: must be the folder above sequences, got none")
            self.key["predictions"] = str(self.folder)
            return
        config = load_config(options.config)
        if options.views:
            config = replace(config, views=parse_views(options.views, "--views"))
        device = team.device(choose_device(options.device))
        self.segmenter = Segmenter.load(config, options.checkpoint, device)
        weights = options.checkpoint or config.weights_path()
        self.key |= {"checkpoint": digest(weights or ""), "recipe": identity(config)}

    def record(self, tried: Tried) -> Record:
        """What a scan contributes, or its error."""
        name = tried.frame.name
        if tried.sample is None:
            return Record(name, error=tried.error)
        try:
            assert tried.sample.file_labels is not None
            true = self.known.to_train(tried.sample.file_labels)
            return Record.of(name, self.known.to_train(self._labels(tried)), true)
        except (ValueError, OSError) as error:
            text = " ".join(str(error).split())
            paths = [tried.frame.label, tried.frame.scan]
            if self.folder is not None:
                paths.append(prediction_path(self.folder, tried.frame))
            named = any(str(path) in text for path in paths)
            return Record(name, error=text if named else f"{tried.frame.label}: {text}")

    def _labels(self, tried: Tried) -> npt.NDArray[np.uint32]:
        assert tried.sample is not None
        scan = tried.sample.scan
        if self.folder is None:
            return self.segmenter.label(scan)
        path = prediction_path(self.folder, tried.frame)
        labels = read_labels(path, scan.total)
        try:
            self.known.to_train(labels)
        except ValueError as error:
            raise ScanError(f"{path}: {error}") from None
        return labels


def _check_predictions(folder: Path, data: SemanticKITTI) -> None:
    """Refuse a folder with no label of any scan, before anything is written."""
    if not any(prediction_path(folder, frame).exists() for frame in data.frames):
        first = prediction_path(folder, data.frames[0]).relative_to(folder)
        raise ValueError(
            f"{folder}: must hold labels as {first}, got none for {len(data)} "
            f"scan{'s' * (len(data) > 1)}; name the folder above sequences"
        )


def prediction_path(folder: Path, frame: Frame) -> Path:
    """Where a submission has the labels of a scan."""
    name = f"{frame.number}.label"
    return folder / "sequences" / f"{frame.sequence:02d}" / "predictions" / name


def _ledger(options: EvalOptions, judge: _Judge, data: SemanticKITTI, team: Team) -> Ledger:
    key = {
        "root": str(data.folder.resolve()),
        "split": options.split,
        "sequences": list(data.sequences),
        "drop_invalid": options.drop_invalid,
        **judge.key,
    }
    # Labels in a folder may have changed since; reading them again costs little.
    keep = not options.fresh and judge.folder is None
    ledger = Ledger(options.out, key, f"{team.rank}-of-{team.size}", keep)
    if team.rank == 0:
        ledger.claim()
    team.wait()
    return ledger


def _count(
    data: SemanticKITTI,
    judge: _Judge,
    ledger: Ledger,
    done: set[str],
    options: EvalOptions,
    team: Team,
) -> dict[str, Record]:
    """Score this process's share; afterwards, all records."""
    share = range(team.rank, len(data), team.size)
    left = [index for index in share if data.frames[index].name not in done]
    running = Confusion(CLASS_NAMES)
    for record in ledger.records().values():
        record.add_to(running)
    team.wait()  # nobody writes before everybody has read
    broken = 0
    with bar("eval", len(left), hidden=team.rank > 0) as progress:
        for tried in Samples(data, left).stream(options.workers):
            record = judge.record(tried)
            for note in tried.sample.scan.notes if tried.sample else ():
                _say(f"warning: {note}")
            if record.error:
                if options.strict:
                    raise ValueError(f"{record.error}; stopped by --strict")
                broken += 1
                _say(f"error: {record.error}")
            ledger.add(record)
            record.add_to(running)
            progress.step(f"mIoU {running.mean():.4f}" + f", {broken} broken" * (broken > 0))
    team.wait()
    found = ledger.records()
    missing = [frame.name for frame in data.frames if frame.name not in found]
    assert not missing, missing
    return {frame.name: found[frame.name] for frame in data.frames}


def _finish(
    data: SemanticKITTI,
    records: dict[str, Record],
    ledger: Ledger,
    options: EvalOptions,
    team: Team,
) -> int:
    table = Confusion(CLASS_NAMES)
    for record in records.values():
        record.add_to(table)
    numbers = report(table, records)
    if not numbers["scans"]:
        team.wait()  # all have read
        if team.rank > 0:
            return 0
        ledger.drop()
        raise ValueError(
            f"{data.folder}: must hold a scan that can be scored, got {len(records)} broken; "
            "nothing is written"
        )
    if team.rank > 0:
        return 0
    numbers |= {"split": options.split, "sequences": list(data.sequences)}
    numbers |= {"label_map": options.label_map, "official_split": not data.notes}
    with atomic(options.out / "results.json") as file:
        file.write(json.dumps(numbers, indent=1).encode())
    write_confusion(options.out / "confusion.png", table)
    _print(Console(), table, numbers, options)
    return 2 if numbers["broken"] else 0


def _print(
    console: Console, table: Confusion, numbers: dict[str, Any], options: EvalOptions
) -> None:
    shown = Table("class", "IoU", "points", title="IoU by class", title_justify="left")
    for column in shown.columns[1:]:
        column.justify = "right"
    truth = table.counts.sum(axis=0)
    present = table.present()
    for i in table.scored:
        value = f"{numbers['iou'][table.names[i]]:.4f}" if i in present else "absent, counts 0"
        shown.add_row(table.names[i], value, f"{truth[i]:,}")
    console.print(shown)
    scans = f"{numbers['scans']} scan{'s' * (numbers['scans'] != 1)}"
    lines = [f"{scans}, {numbers['points']:,} points, {options.label_map} map"]
    if options.label_map != "official":
        lines[0] += ": these are not the official numbers"
    lines.append(f"mIoU {numbers['miou']:.4f} over 19 classes: the official formula")
    if present:
        lines.append(f"mIoU {numbers['miou_present']:.4f} over the {len(present)} that occur")
    lines.append(f"accuracy {numbers['accuracy']:.4f}")
    if numbers["broken"]:
        count = len(numbers["broken"])
        lines.append(f"{count} broken scan{'s' * (count > 1)} not counted: "
                     + ", ".join(numbers["broken"]))  # fmt: skip
    lines.append(f"results in {options.out}/")
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
