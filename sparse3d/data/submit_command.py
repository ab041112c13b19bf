"""What `sparse3d submit` does once its arguments are parsed, and what it prints."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from sparse3d._atomic import check_file
from sparse3d.data.benchmark import Ledger, Samples, digest, identity
from sparse3d.data.config import load_config
from sparse3d.data.dataset import SemanticKITTI
from sparse3d.data.files import alone_in, write_labels
from sparse3d.data.kitti import LABEL_BYTES, POINT_BYTES
from sparse3d.data.progress import bar
from sparse3d.data.segment import Segmenter, choose_device
from sparse3d.data.submission import check_submission, entry_of, write_submission
from sparse3d.data.team import Team, run_as_team

__all__ = ["SubmitOptions", "submit"]


@dataclass
class SubmitOptions:
    """Arguments of `sparse3d submit`.

    Attributes:
        root: SemanticKITTI's folder.
        config: YAML file or name of a recipe.
        checkpoint: Weights, or None for those that ship with the recipe.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        out: The zip.
        check: Only check a zip that is there.
        workers: Processes that read scans ahead.
        drop_invalid: Points with NaN or infinite values get label 0 instead of an error.
        incomplete: Accept a folder with fewer scans or sequences than the benchmark has.
        fresh: Forget what an interrupted run has predicted.
    """

    root: Path
    config: str = "demo"
    checkpoint: Path | None = None
    device: str = "auto"
    out: Path = Path("submission.zip")
    check: bool = False
    workers: int = 0
    drop_invalid: bool = False
    incomplete: bool = False
    fresh: bool = False


def submit(options: SubmitOptions) -> int:
    """Predict sequences 11 to 21 and pack them; the exit status is 0, or 2 after any error."""
    return run_as_team(lambda team: _submit(options, team), "the same command goes on")


def _submit(options: SubmitOptions, team: Team) -> int:
    if options.out.suffix != ".zip":
        raise ValueError(f"--out must end with .zip, got {options.out}")
    if not options.check:
        check_file("--out", options.out)
    data = SemanticKITTI(
        options.root, "test", drop_invalid=options.drop_invalid, incomplete=options.incomplete
    )
    if data.absent and team.rank == 0:
        names = ", ".join(f"{number:02d}" for number in data.absent)
        sys.stderr.write(f"warning: sequences {names} are not there and left out\n")
    if data.notes and not options.incomplete:
        raise ValueError(f"{data.notes[0]}; accept that with --incomplete")
    if not options.check:
        folder = options.out.with_suffix(".predictions")
        with alone_in(folder) if team.rank == 0 else nullcontext():
            broken = _predict(options, data, folder, team)
            if team.rank > 0:
                return 0
            if broken:
                raise ValueError(
                    f"{options.out}: must hold every scan, got {broken} broken; not made"
                )
            with bar("pack and check", 2 * len(data)) as progress:
                write_submission(options.out, data, folder, progress.step)
    elif team.rank == 0:
        with bar("check", len(data)) as progress:
            check_submission(options.out, data, progress.step)
    if team.rank == 0:
        print(f"{options.out}: {len(data)} scans of {len(data.sequences)} sequences: names, sizes "
              "and raw ids are right")  # fmt: skip
    return 0


def _predict(options: SubmitOptions, data: SemanticKITTI, folder: Path, team: Team) -> int:
    """Label this process's share; the number of broken scans of all."""
    config = load_config(options.config)
    device = team.device(choose_device(options.device))
    segmenter = Segmenter.load(config, options.checkpoint, device)
    weights = digest(options.checkpoint or config.weights_path() or "")
    key = {
        "root": str(data.folder.resolve()),
        "checkpoint": weights,
        "recipe": identity(config),
        "drop": options.drop_invalid,
    }
    keep = not options.fresh
    if team.rank == 0:
        Ledger(folder, json.loads(json.dumps(key)), "none", keep).claim()
        for frame in data.frames:
            (folder / entry_of(frame)).parent.mkdir(parents=True, exist_ok=True)
            if not keep:
                (folder / entry_of(frame)).unlink(missing_ok=True)
    team.wait()
    share = range(team.rank, len(data), team.size)
    left = [index for index in share if not _is_done(data, index, folder)]
    broken = 0
    with bar("predict", len(left), hidden=team.rank > 0) as progress:
        for tried in Samples(data, left).stream(options.workers):
            if tried.sample is None:
                broken += 1
                sys.stderr.write(f"error: {tried.error}\n")
            else:
                target = folder / entry_of(tried.frame)
                write_labels(target, segmenter.label(tried.sample.scan))
            progress.step(tried.frame.name)
    return sum(team.gather(broken))


def _is_done(data: SemanticKITTI, index: int, folder: Path) -> bool:
    """Whether the labels are there; they are written whole or not at all."""
    frame = data.frames[index]
    path = folder / entry_of(frame)
    points = frame.scan.stat().st_size // POINT_BYTES
    return path.is_file() and path.stat().st_size == LABEL_BYTES * points
