"""Train the weights that ship with the package: `sparse3d train train_demo`, for a GPU.

    python tools/train_demo.py --out out/train/train_demo --ship demo.pt

Without kernels for the GPU, the package's references take its place, tap by tap; this puts shorter
ones there (see `fast_reference`) and rounds the result to half precision. Interrupted, the same
command goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import fast_reference
import torch

from sparse3d.data.files import atomic
from sparse3d.data.segment import load_weights
from sparse3d.train.command import TrainOptions, train


def ship(source: Path, target: Path) -> None:
    """Half precision is enough to ship: it moves no score by more than 0.001."""
    state = {
        key: value.half() if value.is_floating_point() else value
        for key, value in load_weights(source).items()
    }
    with atomic(target) as file:
        torch.save(state, file)


def main() -> int:
    """Parse arguments, train, round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="train_demo")
    parser.add_argument("--out", type=Path, default=Path("out/train/train_demo"))
    parser.add_argument("--ship", type=Path, help="where the rounded weights go")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=-1)
    parser.add_argument("--start", type=Path, help="weights to go on from")
    parser.add_argument("--exact", action="store_true", help="train on the package's own operators")
    args = parser.parse_args()
    if not args.exact:
        fast_reference.install()
    torch.backends.cuda.matmul.allow_tf32 = True
    options = TrainOptions(
        config=args.config,
        out=args.out,
        device=args.device,
        workers=args.workers,
        start=args.start,
    )
    status = train(options, after_step=fast_reference.forget)
    if status == 0 and args.ship is not None:
        ship(args.out / "model.pt", args.ship)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
