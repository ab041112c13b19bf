"""Names of pytorch3d that are no point operators: they import, and refuse when called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def refusals(module: str, names: str) -> dict[str, Callable[..., NoReturn]]:
    """A function for each of the names, told apart by blanks, of `pytorch3d.<module>`."""
    return {name: _refusal(f"pytorch3d.{module}.{name}") for name in names.split()}


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{name}: sparse3d has pytorch3d's point operators alone")

    return refuse
