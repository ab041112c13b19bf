"""Errors of usage in one line, as the other errors of the commands are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from sparse3d import _interrupt

__all__ = ["Job", "OneLine"]

Job = Callable[[], int]
"""What a command does once its arguments are checked and its modules imported; gives the status."""


class OneLine(TyperGroup):
    """Commands that give a `Job`; misuse ends in one line on stderr and status 2, in no box."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse what stands before the command."""
        with _one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Parse the rest, let the command import what it needs, then run it."""
        with _one_line():
            job: Job = super().invoke(ctx)
            _interrupt.raised()
            raise typer.Exit(job())


@contextmanager
def _one_line() -> Iterator[None]:
    # Typer comes with a click of its own or with the common one, by version: no class to name.
    try:
        yield
    except Exception as error:
        words = getattr(error, "format_message", None)
        if words is None or type(error).__name__ == "NoArgsIsHelpError":
            raise
        context = getattr(error, "ctx", None)
        way_out = f"; see {context.command_path} --help" if context is not None else ""
        line = " ".join(words().split()).rstrip(".")
        typer.echo(f"error: {line}{way_out}", err=True)
        raise typer.Exit(getattr(error, "exit_code", 2)) from None
