"""Arguments of `sparse3d eval`, `submit` and `train`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sparse3d._usage import Job

__all__ = ["refuse", "register"]

Root = Annotated[Path, typer.Argument(help="SemanticKITTI's folder, which holds sequences/.")]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Weights; those that ship with the recipe if not given.")
]
Recipe = Annotated[str, typer.Option(help="Recipe: a YAML file, or the name of one.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that read scans ahead.")]
DropInvalid = Annotated[
    bool,
    typer.Option(
        "--drop-invalid",
        help="NaN and infinite points, and a few beyond 1000 m, get label 0: no error.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first broken scan.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Begin anew instead of going on where it was interrupted.")
]

_NETWORK = ("checkpoint", "config", "device")


def refuse(context: typer.Context, names: Sequence[str], why: str, way: str) -> None:
    """End with 2 and one line if an option is given that would have no effect.

    Args:
        context: Of the command.
        names: Parameters of the command.
        why: Ends the sentence that they must be left out, as ``"with --check"``.
        way: What to do instead.
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is None or source.name.startswith("DEFAULT"):
            continue
        value = context.params[name]
        got = "it" if value is True else " ".join(str(value).split())
        typer.echo(
            f"error: --{name.replace('_', '-')} must be left out {why}, got {got}; {way}",
            err=True,
        )
        raise typer.Exit(2)


def evaluate(
    context: typer.Context,
    root: Root,
    checkpoint: Checkpoint = None,
    config: Recipe = "demo",
    predictions: Annotated[
        Path | None,
        typer.Option(help="Score the labels in this folder (sequences/08/predictions/...)."),
    ] = None,
    split: Annotated[str, typer.Option(help="train or val.")] = "val",
    sequences: Annotated[
        str, typer.Option(help="Other sequences than the split's, as 0,3,8.")
    ] = "",
    label_map: Annotated[
        str, typer.Option(help="official, or spvnas, whose numbers are not official.")
    ] = "official",
    views: Annotated[
        int, typer.Option(min=0, max=16, help="Looks at a scan; the recipe's if 0.")
    ] = 0,
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("out/eval"),
    workers: Workers = 0,
    drop_invalid: DropInvalid = False,
    strict: Strict = False,
    fresh: Fresh = False,
) -> Job:
    """Score a network on SemanticKITTI by the official formula; interrupted, it goes on."""
    if predictions is not None:
        refuse(context, (*_NETWORK, "views"), "with --predictions", "give one of the two")
    from sparse3d.data.eval_command import EvalOptions, evaluate  # help should not wait for torch

    return partial(
        evaluate,
        EvalOptions(
            root=root,
            config=config,
            checkpoint=checkpoint,
            predictions=predictions,
            split=split,
            sequences=_numbers(sequences),
            label_map=label_map,
            views=views,
            device=device,
            out=out,
            workers=workers,
            drop_invalid=drop_invalid,
            strict=strict,
            fresh=fresh,
        ),
    )


def _numbers(text: str) -> list[int]:
    """Sequence numbers as a list."""
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise typer.BadParameter(f"sequences must be numbers as 0,3,8, got {text!r}") from None


def submit(
    context: typer.Context,
    root: Root,
    checkpoint: Checkpoint = None,
    config: Recipe = "demo",
    device: Device = "auto",
    out: Annotated[Path, typer.Option(help="The zip.")] = Path("submission.zip"),
    check: Annotated[
        bool, typer.Option("--check", help="Only check the zip that is there.")
    ] = False,
    workers: Workers = 0,
    drop_invalid: DropInvalid = False,
    incomplete: Annotated[
        bool,
        typer.Option(
            "--incomplete",
            help="Accept fewer scans than the benchmark has, and leave out absent sequences.",
        ),
    ] = False,
    fresh: Fresh = False,
) -> Job:
    """Predict sequences 11 to 21 and pack the zip that the benchmark takes."""
    if check:
        names = (*_NETWORK, "workers", "drop_invalid", "fresh")
        refuse(context, names, "with --check", "give one of the two")
    from sparse3d.data.submit_command import SubmitOptions, submit  # help should not wait for torch

    return partial(
        submit,
        SubmitOptions(
            root=root,
            config=config,
            checkpoint=checkpoint,
            device=device,
            out=out,
            check=check,
            workers=workers,
            drop_invalid=drop_invalid,
            incomplete=incomplete,
            fresh=fresh,
        ),
    )


def train(
    config: Annotated[str, typer.Argument(help="Training config: a YAML file, or a name.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; out/train/NAME if not given.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="SemanticKITTI's folder, instead of the config's.")
    ] = None,
    device: Device = "auto",
    workers: Annotated[
        int, typer.Option(min=-1, help="Processes that prepare clouds; the config's if -1.")
    ] = -1,
    start: Annotated[Path | None, typer.Option(help="Weights to begin with.")] = None,
    fresh: Fresh = False,
    strict: Strict = False,
) -> Job:
    """Train a network; the same command goes on where it was interrupted."""
    from sparse3d.train.command import TrainOptions, train  # help should not wait for torch

    return partial(
        train,
        TrainOptions(
            config=config,
            out=out,
            root=root,
            device=device,
            workers=workers,
            start=start,
            fresh=fresh,
            strict=strict,
        ),
    )


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("eval")(evaluate)
    app.command()(submit)
    app.command()(train)
