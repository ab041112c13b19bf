"""Why a checkpoint is refused, apart from the ways out: a command has others than Python."""

from __future__ import annotations

from collections.abc import Sequence

_WRITERS = {
    "spconv": "spconv 2.2 and later, and sparse3d: usual today",
    "spconv-2.1": "spconv 2.0 and 2.1",
    "spconv-1": "spconv 1.x",
    "minkowski": "MinkowskiEngine",
    "torchsparse": "torchsparse",
}


class Refusal(ValueError):
    """A ValueError of the house form that keeps its halves.

    Args:
        reason: *name must be X, got Y*.
        way_out: for who calls from Python.
        layouts: to choose from, where that is the way out.
    """

    def __init__(self, reason: str, way_out: str = "", layouts: Sequence[str] = ()) -> None:
        super().__init__(f"{reason}; {way_out}" if way_out else reason)
        self.reason = reason
        self.layouts = tuple(layouts)


def say_which(layouts: Sequence[str], option: str) -> str:
    """The way out where several layouts fit; `option` is how to give one, with {} for its name."""
    ways = [f"{option.format(layout)} ({_WRITERS[layout]})" for layout in layouts]
    return "say which library wrote it: " + " or ".join(ways)
