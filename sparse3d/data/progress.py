"""A bar for what takes long: on a terminal it moves, elsewhere it stays silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["Bar", "bar"]


class Bar:
    """What moves a bar on."""

    def __init__(self, progress: Progress, total: int, name: str, done: int) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total, completed=done, note="")

    def step(self, note: str) -> None:
        """One more is done; ``note`` stands beside the bar."""
        self._progress.update(self._task, advance=1, note=note)


@contextmanager
def bar(name: str, total: int, *, done: int = 0, hidden: bool = False) -> Iterator[Bar]:
    """A bar on stderr while the block runs."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        disable=hidden or total < 2,
    )
    with progress:
        yield Bar(progress, total, name, done)
