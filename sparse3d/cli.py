"""The `sparse3d` command: argument parsing, nothing else."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sparse3d import cli_train
from sparse3d._usage import Job, OneLine
from sparse3d._version import __version__

DropInvalid = Annotated[
    bool,
    typer.Option(
        "--drop-invalid",
        help="Leave out points with NaN or infinite values, and a few that lie too far away "
        "(1000 m in a .bin, 1e12 in other files).",
    ),
]

app = typer.Typer(
    cls=OneLine,
    help="Sparse 3D deep learning: a lidar scan in, labels out.",
    epilog="Also: sparse3d doctor (what this installation can do), sparse3d selftest "
    "(every operator of a device against the CPU).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sparse3d {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def segment(
    context: typer.Context,
    scans: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SCAN...",
            help="Scans (.bin, .pcd.bin, .ply, .pcd, .las, .laz, .npy, .npz), or folders.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Weights; those that ship with the package if not given."),
    ] = None,
    config: Annotated[
        str, typer.Option(help="Recipe: a YAML file, or the name of one in the package.")
    ] = "demo",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("out"),
    demo: Annotated[
        bool, typer.Option("--demo", help="Segment a simulated street and report the scores.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=99, help="Street of the demo.")] = 7,
    report: Annotated[
        int, typer.Option(min=0, max=1000, help="Score this many held-out simulated scans.")
    ] = 0,
    truth: Annotated[
        Path | None,
        typer.Option(help="Score against these labels: a .label file, or a folder of them."),
    ] = None,
    drop_invalid: DropInvalid = False,
    max_remission: Annotated[
        float, typer.Option(min=0.0, help="Largest legal remission; KITTI has 1.")
    ] = 1.0,
    layout: Annotated[
        str | None, typer.Option(help="Columns of a .bin: kitti, nuscenes, xyzrgb or xyz.")
    ] = None,
) -> Job:
    """Label every point of lidar scans: .label, coloured .ply and a .png from above."""
    if not scans and not demo and not report:
        raise typer.BadParameter("must be given at least one scan, got none; or use --demo")
    if not demo:
        cli_train.refuse(context, ("seed",), "without --demo", "add --demo")
    if not scans and not demo:
        reading = ("truth", "drop_invalid", "max_remission", "layout")
        cli_train.refuse(context, reading, "without a scan", "name one")
    if layout is not None:
        cli_train.refuse(context, ("max_remission",), "with --layout", "give one of the two")
    from sparse3d.data.run import Options, run  # help should not wait for torch

    return partial(
        run,
        Options(
            scans=scans or [],
            config=config,
            checkpoint=checkpoint,
            device=device,
            out=out,
            demo=demo,
            seed=seed,
            report=report,
            truth=truth,
            drop_invalid=drop_invalid,
            max_remission=max_remission,
            layout=layout,
        ),
    )


cli_train.register(app)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="Checkpoint of another library, or of ours.")],
    target: Annotated[Path, typer.Argument(help=".safetensors, .pth or .pt to write.")],
    layout: Annotated[
        str,
        typer.Option(
            help="Of its kernels: auto, spconv, spconv-2.1, spconv-1, minkowski or torchsparse."
        ),
    ] = "auto",
    reverse_axes: Annotated[
        bool, typer.Option("--reverse-axes", help="The peer counts x, y, z; we count z, y, x.")
    ] = False,
) -> Job:
    """Rewrite a checkpoint in sparse3d's layout and report what became of every entry."""
    from sparse3d.checkpoint._command import run  # help should not wait for torch

    return partial(run, source, target, layout, reverse_axes)


@app.command()
def view(
    scan: Annotated[Path, typer.Argument(help="Scan or any other point cloud.")],
    labels: Annotated[
        Path | None,
        typer.Option(help="Colour by these labels: a .label file, or a folder of them."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="Compare with these labels, given likewise.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write this .html or .png instead of opening it.")
    ] = None,
    viewer: Annotated[str, typer.Option(help="html (a browser), or open3d.")] = "html",
    layout: Annotated[
        str | None, typer.Option(help="Columns of a .bin: kitti, nuscenes, xyzrgb or xyz.")
    ] = None,
    drop_invalid: DropInvalid = False,
    most: Annotated[
        int, typer.Option(min=1, help="Thin out clouds of more points than this.")
    ] = 3_000_000,
) -> Job:
    """Look at a point cloud: a page of its own that needs no network, or a picture."""
    from sparse3d.view.run import Options, run  # help should not wait for numpy

    return partial(run, Options(scan, labels, truth, save, viewer, layout, drop_invalid, most))
