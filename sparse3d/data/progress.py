"""A bar for what takes long; where nobody watches a terminal, a line now and then."""

from __future__ import annotations

import sys
import time
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

_EVERY = 30.0  # seconds between lines


class Bar:
    """What moves a bar on.

    Args:
        name: Stands before it.
        total: How many there are.
        done: How many are done already.
        progress: The bar, or None for lines.
        silent: Show nothing at all.
    """

    def __init__(
        self, name: str, total: int, done: int, progress: Progress | None, silent: bool
    ) -> None:
        self._name, self._total, self._done = name, total, done
        self._progress, self._silent = progress, silent
        self._spoken = time.monotonic()
        if progress is not None:
            self._task = progress.add_task(name, total=total, completed=done, note="")

    def step(self, note: str) -> None:
        """One more is done; ``note`` stands beside the bar."""
        self._done += 1
        if self._progress is not None:
            self._progress.update(self._task, advance=1, note=note)
        elif not self._silent and time.monotonic() - self._spoken > _EVERY:
            self._spoken = time.monotonic()
            sys.stderr.write(f"{self._name}: {self._done} of {self._total}  {note}\n")


@contextmanager
def bar(name: str, total: int, *, done: int = 0, hidden: bool = False) -> Iterator[Bar]:
    """A bar on stderr while the block runs."""
    console = Console(stderr=True)
    silent = hidden or total < 2
    if silent or not console.is_terminal:
        yield Bar(name, total, done, None, silent)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield Bar(name, total, done, progress, silent)
