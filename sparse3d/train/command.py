"""What `sparse3d train` does once its arguments are parsed, and what it prints."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from sparse3d.data.config import dump_config
from sparse3d.data.files import alone_in, atomic, check_folder
from sparse3d.data.segment import choose_device
from sparse3d.data.team import INTERRUPTED, Team, run_as_team
from sparse3d.train.config import TrainConfig, load_train_config
from sparse3d.train.logs import write_curve
from sparse3d.train.trainer import Outcome, Trainer

__all__ = ["TrainOptions", "train"]


@dataclass
class TrainOptions:
    """Arguments of `sparse3d train`.

    Attributes:
        config: YAML file or name of a training config.
        out: Folder of checkpoints and logs; ``out/train/NAME`` if not given.
        root: SemanticKITTI's folder, instead of the config's.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        workers: Processes that prepare clouds; the config's if negative.
        start: Weights to begin with.
        fresh: Begin anew, whatever the folder holds.
        strict: Stop at the first broken scan.
    """

    config: str
    out: Path | None = None
    root: Path | None = None
    device: str = "auto"
    workers: int = -1
    start: Path | None = None
    fresh: bool = False
    strict: bool = False


def train(options: TrainOptions) -> int:
    """Train; the exit status is 0, 2 after an error or with broken scans, 130 when interrupted."""
    return run_as_team(
        lambda team: _train(options, team),
        "the same command goes on from the last checkpoint",
    )


def _train(options: TrainOptions, team: Team) -> int:
    config = load_train_config(options.config)
    if options.workers >= 0:
        config = replace(config, workers=options.workers)
    if options.root is not None:
        if config.data.kind != "kitti":
            raise ValueError(
                f"--root must be left out for data.kind {config.data.kind} of {options.config}, "
                f"got {options.root}"
            )
        config = replace(config, data=replace(config.data, root=str(options.root)))
    out = options.out if options.out is not None else Path("out/train") / config.name
    check_folder("--out", out)
    device = team.device(choose_device(options.device))
    with alone_in(out) if team.rank == 0 else nullcontext():
        return _run(options, config, out, device, team)


def _run(
    options: TrainOptions, config: TrainConfig, out: Path, device: torch.device, team: Team
) -> int:
    begun = time.perf_counter()
    trainer = Trainer(
        config,
        out,
        device,
        team,
        fresh=options.fresh,
        start=options.start,
        strict=options.strict,
        say=_say if team.rank == 0 else lambda line: None,
    )
    outcome = trainer.run()
    broken = {name for names in team.gather(set(outcome.broken)) for name in names}
    if team.rank > 0:
        return 0
    if outcome.step < outcome.steps:
        _say(f"interrupted at step {outcome.step} of {outcome.steps}; the same command goes on")
        return INTERRUPTED
    write_curve(out, f"{config.name}: final mIoU {outcome.score['miou']:.4f}")
    with atomic(out / "recipe.yaml") as file:
        file.write(dump_config(replace(config.recipe, name=config.name, about="")).encode())
    _print(config.batch * team.size, outcome, out, time.perf_counter() - begun)
    if broken:
        _say(f"{len(broken)} broken scans were left out: {', '.join(sorted(broken))}")
    return 2 if broken else 0


def _print(clouds: int, outcome: Outcome, out: Path, seconds: float) -> None:
    console = Console()
    table = Table("class", "IoU", title="IoU on held-out scans", title_justify="left")
    table.columns[1].justify = "right"
    for name, value in outcome.score["iou"].items():
        table.add_row(name, f"{value:.4f}")
    table.add_section()
    table.add_row("mean", f"{outcome.score['miou']:.4f}")
    console.print(table)
    for line in (
        f"{outcome.steps} steps of {clouds} {'cloud' if clouds == 1 else 'clouds'}, "
        f"{seconds:.0f} s since the last start",
        f"best mIoU {outcome.best[0]:.4f} at step {outcome.best[1]}",
        f"model.pt (last weights), best.pt, recipe.yaml, log.jsonl and curve.png in {out}/",
    ):
        console.print(line, highlight=False, soft_wrap=True)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
