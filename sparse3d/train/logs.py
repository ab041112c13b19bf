"""The log of a run: one JSON object a line, and TensorBoard's event files beside it on request."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sparse3d.data.files import atomic

__all__ = ["Log", "read_log", "write_curve"]


class Log:
    """Numbers by step.

    Args:
        folder: Where ``log.jsonl`` lies, and ``tensorboard/``.
        step: Steps done already: lines of later ones, which an interrupted run has left, go.
        tensorboard: Write event files too.
        unscored: The score of that step itself will come again.

    Raises:
        ValueError: TensorBoard is asked for and not installed; one line.
    """

    def __init__(self, folder: Path, step: int, tensorboard: bool, unscored: bool = False) -> None:
        self._path = folder / "log.jsonl"
        kept = [
            entry
            for entry in read_log(self._path)
            if entry["step"] <= step
            and not (unscored and entry["step"] == step and "miou" in entry)
        ]
        with atomic(self._path) as file:
            file.write("".join(json.dumps(entry) + "\n" for entry in kept).encode())
        self._board: Any = None
        if tensorboard:
            if find_spec("tensorboard") is None:
                raise ValueError(
                    "tensorboard must be installed for tensorboard: true, got no such package; "
                    "pip install tensorboard, or leave the entry out"
                )
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, **numbers: Any) -> None:
        """Append a line; numbers in a table get its name as a prefix in TensorBoard."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **numbers}) + "\n")
        if self._board is None:
            return
        for name, value in numbers.items():
            inner = value if isinstance(value, dict) else {"": value}
            for part, number in inner.items():
                if isinstance(number, int | float):
                    self._board.add_scalar(f"{name}/{part}" if part else name, number, step)

    def close(self) -> None:
        """Write what TensorBoard holds back."""
        if self._board is not None:
            self._board.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; half a line at the end, of a killed run, is left out."""
    entries = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            entries.append(dict(json.loads(line)))
        except ValueError:
            continue
    return entries


def write_curve(folder: Path, title: str) -> None:
    """Draw loss and mean IoU over the steps of ``log.jsonl`` as ``curve.png``."""
    from matplotlib.figure import Figure

    entries = read_log(folder / "log.jsonl")
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    left = figure.add_subplot()
    losses = [(e["step"], e["loss"]) for e in entries if "loss" in e]
    scores = [(e["step"], e["miou"]) for e in entries if "miou" in e]
    left.plot(*zip(*losses, strict=True), color="tab:blue", label="loss") if losses else None
    left.set_xlabel("step")
    left.set_ylabel("loss", color="tab:blue")
    left.set_ylim(bottom=0)
    right = left.twinx()
    if scores:
        right.plot(*zip(*scores, strict=True), "o-", color="tab:orange", markersize=3)
    right.set_ylim(0, 1)
    right.set_ylabel("mIoU", color="tab:orange")
    right.grid(True, alpha=0.3)
    left.set_title(title, loc="left")
    with atomic(folder / "curve.png") as file:
        figure.savefig(file, format="png")
