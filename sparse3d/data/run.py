"""What `sparse3d segment` does once its arguments are parsed, and what it prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from sparse3d.data.coarse import COARSE_NAMES, coarse_scores, to_coarse
from sparse3d.data.config import load_config
from sparse3d.data.evaluate import held_out
from sparse3d.data.files import alone_in, check_folder, write_labels, write_scan
from sparse3d.data.kitti import Scan, ScanError, read_labels, read_scan
from sparse3d.data.metrics import Confusion
from sparse3d.data.readers import ending_of, read_points, scans_in, stem_of
from sparse3d.data.segment import Segmenter, Stages, choose_device, write_results
from sparse3d.data.semantic_kitti import CLASS_NAMES, COLORS, LABEL_MAPS, RAW_NAMES
from sparse3d.data.simulate import Sensor, simulate

__all__ = ["Options", "run"]

_REPORT_SEED = 100  # the demo's own street has a smaller seed


@dataclass
class Options:
    """Arguments of `sparse3d segment`.

    Attributes:
        scans: Files that `read_points` knows, or folders of them.
        config: YAML file or name of a recipe.
        checkpoint: Weights, or None for those that ship with the package.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        out: Folder of the results.
        demo: Segment a simulated street and report how good the weights are.
        seed: Seed of the demo's street.
        report: Number of held-out simulated scans that the report is made of.
        truth: Labels to score against: one file for one scan, or a folder.
        drop_invalid: Leave out points with NaN or infinite values.
        max_remission: Largest legal remission of KITTI ``.bin`` files.
        layout: Columns of ``.bin`` files that are not KITTI's.
    """

    scans: Sequence[Path] = ()
    config: str = "demo"
    checkpoint: Path | None = None
    device: str = "auto"
    out: Path = Path("out")
    demo: bool = False
    seed: int = 7
    report: int = 0
    truth: Path | None = None
    drop_invalid: bool = False
    max_remission: float = 1.0
    layout: str | None = None


@dataclass
class _Tally:
    """What is added up over scans."""

    scans: int = 0
    points: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    stages: Stages = field(default_factory=Stages)
    official: Confusion = field(default_factory=lambda: Confusion(CLASS_NAMES))
    coarse: Confusion = field(default_factory=lambda: Confusion(COARSE_NAMES))
    failed: int = 0


def run(options: Options) -> int:
    """Segment every scan, print tables, and return the exit status: 0, or 2 after any error."""
    with ExitStack() as held:
        try:
            check_folder("--out", options.out)
            segmenter = Segmenter.load(
                load_config(options.config), options.checkpoint, choose_device(options.device)
            )
            paths = _expand(options)
            if paths or options.demo:
                held.enter_context(alone_in(options.out))
            if options.demo:
                paths.append(_make_demo(options))
        except (ValueError, OSError) as error:
            _complain(error)
            return 2
        return _segment(paths, options, segmenter)


def _segment(paths: list[Path], options: Options, segmenter: Segmenter) -> int:
    """Every scan, then the tables."""
    console = Console()
    tally = _Tally()
    with _progress(len(paths)) as progress:
        task = progress.add_task("segment", total=len(paths))
        for path in paths:
            try:
                _one(path, options, segmenter, tally)
            except (ValueError, OSError) as error:
                tally.failed += 1
                _complain(error)
            progress.advance(task)
    if tally.scans:
        console.print(_class_table(tally))
        console.print(_stage_table(tally, segmenter))
        console.print(f"results in {options.out}/", highlight=False, soft_wrap=True)
    if options.truth is not None and tally.scans:
        _print_scores(console, tally)
    if options.report or options.demo:
        _print_report(console, segmenter, options.report or 24)
    return 2 if tally.failed else 0


def _one(path: Path, options: Options, segmenter: Segmenter, tally: _Tally) -> None:
    """Read, label and write one scan."""
    stages = tally.stages
    with stages.measure("read"):
        scan = _read(path, options)
        truth = None
        if options.truth is not None:
            truth = read_labels(_truth_path(options.truth, path), scan.total)
    for note in scan.notes:
        _say(f"warning: {note}")
    labels = segmenter.label(scan, stages)
    with stages.measure("write"):
        title = f"{path.name}, labelled by sparse3d with the {segmenter.config.name} weights"
        write_results(options.out, stem_of(path), scan, labels, title)
    tally.scans += 1
    tally.points += scan.total
    ids, counts = np.unique(labels & np.uint32(0xFFFF), return_counts=True)
    for raw, count in zip(ids.tolist(), counts.tolist(), strict=True):
        tally.counts[raw] = tally.counts.get(raw, 0) + count
    if truth is not None:
        known = LABEL_MAPS["official"]
        tally.official.add(known.to_train(labels), known.to_train(truth))
        tally.coarse.add(to_coarse(labels), to_coarse(truth))


def _read(path: Path, options: Options) -> Scan:
    if ending_of(path) == ".bin" and options.layout is None:
        return read_scan(
            path, drop_invalid=options.drop_invalid, max_remission=options.max_remission
        )
    return read_points(path, layout=options.layout, drop_invalid=options.drop_invalid).scan()


def _expand(options: Options) -> list[Path]:
    """The scans, folders replaced by the scans in them; refuses what would overwrite."""
    paths: list[Path] = []
    for path in options.scans:
        if path.is_dir():
            paths += scans_in(path)
        else:
            paths.append(path)
    seen: dict[str, Path] = {}
    for path in paths:
        stem = stem_of(path)
        if stem in seen:
            raise ScanError(
                f"{path}: names must differ, got {seen[stem]} too: both would write "
                f"{options.out / stem}.label; segment them into different folders"
            )
        seen[stem] = path
        if ending_of(path) == ".ply" and path.resolve() == (options.out / f"{stem}.ply").resolve():
            raise ScanError(f"{path}: must not be overwritten by its result; name another --out")
        beside = path.with_name(f"{stem}.label")
        if beside.exists() and beside.resolve() == (options.out / beside.name).resolve():
            raise ScanError(
                f"{beside}: must not be overwritten: it lies beside its scan; name another --out"
            )
    if options.truth is not None and not options.truth.is_dir() and len(paths) != 1:
        raise ScanError(
            f"{options.truth}: must be a folder of labels for {len(paths)} scans, got a file"
        )
    return paths


def _truth_path(truth: Path, scan: Path) -> Path:
    return truth / f"{stem_of(scan)}.label" if truth.is_dir() else truth


def _make_demo(options: Options) -> Path:
    """Scan a simulated street and leave it, with its true labels, beside the results."""
    street = simulate(options.seed, Sensor())
    folder = options.out
    (folder / "truth").mkdir(parents=True, exist_ok=True)
    path = folder / "demo.bin"
    write_scan(path, street.points)
    write_labels(folder / "truth" / "demo.label", street.labels)
    return path


def _complain(error: Exception) -> None:
    if isinstance(error, OSError) and error.filename is not None:
        _say(f"error: {error.filename}: {error.strerror}; name another place with --out")
        return
    _say(f"error: {' '.join(str(error).split())}")


def _say(line: str) -> None:
    """One whole line on stderr; rich would wrap it."""
    sys.stderr.write(line + "\n")


def _progress(scans: int) -> Progress:
    """A bar on a terminal, shown when there is more than one scan to wait for."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=scans < 2 or not sys.stderr.isatty(),
    )


def _class_table(tally: _Tally) -> Table:
    table = Table("", "class", "id", "points", "share", title="Labels", title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    for raw, count in sorted(tally.counts.items(), key=lambda item: -item[1]):
        red, green, blue = COLORS.get(raw, (128, 128, 128))
        swatch = f"[rgb({red},{green},{blue})]\u2588\u2588[/]"
        share = f"{100 * count / max(tally.points, 1):.1f} %"
        table.add_row(swatch, RAW_NAMES.get(raw, "?"), str(raw), f"{count:,}", share)
    table.add_section()
    table.add_row("", f"{tally.scans} scan{'s' * (tally.scans != 1)}", "", f"{tally.points:,}", "")
    return table


def _stage_table(tally: _Tally, segmenter: Segmenter) -> Table:
    where = str(segmenter.device)
    table = Table("stage", "seconds", "per scan", title=f"Time ({where})", title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    total = 0.0
    for stage, seconds in tally.stages.seconds.items():
        total += seconds
        table.add_row(stage, f"{seconds:.2f}", f"{1e3 * seconds / tally.scans:.0f} ms")
    table.add_section()
    table.add_row("together", f"{total:.2f}", f"{1e3 * total / tally.scans:.0f} ms")
    return table


def _print_scores(console: Console, tally: _Tally) -> None:
    """Against the labels given with --truth."""
    scores = coarse_scores(tally.coarse)
    table = Table("coarse class", "IoU", title="Against the given labels", title_justify="left")
    table.columns[1].justify = "right"
    for name, value in scores.items():
        if name == "mean":
            table.add_section()
        table.add_row(name, f"{value:.3f}")
    console.print(table)
    official = tally.official
    console.print(
        f"official classes: mIoU {official.mean():.4f} over 19, "
        f"{official.mean_present():.4f} over the {len(official.present())} that occur",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def _print_report(console: Console, segmenter: Segmenter, scans: int) -> None:
    """On simulated streets that were not trained on."""
    config = segmenter.config
    seeds = range(_REPORT_SEED, _REPORT_SEED + scans)
    with console.status(f"scoring {scans} held-out simulated scans"):
        result = held_out(segmenter, seeds)
    title = f"IoU on {scans} held-out simulated scans"
    table = Table("class", "IoU", "points", title=title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    counts = result.confusion.counts.sum(axis=0)
    points = dict(zip(result.confusion.names, counts, strict=True))
    scores = result.scores()
    # A class may have no point in a scan or two: there is nothing to find then.
    there = [value for name, value in scores.items() if points[name]]
    for name, value in scores.items():
        table.add_row(name, f"{value:.3f}" if points[name] else "-", f"{points[name]:,}")
    table.add_section()
    few = len(there) < len(scores)
    label = f"mean of the {len(there)} that occur" if few else "mean"
    table.add_row(label, f"{np.mean(there):.3f}", "")
    console.print(table)
    if config.about:
        console.print(config.about, highlight=False, soft_wrap=True)
