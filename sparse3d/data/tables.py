"""Tables of a YAML file, read strictly: wrong values and misspelt keys are one line each."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Table", "check_keys", "load_yaml"]

_EXPONENT = re.compile(r"[-+]?\d+e[-+]?\d+", re.IGNORECASE)

_MOST_ENTRIES = 10_000
_MOST_BYTES = 2**18
_DEEPEST = 32
"""The parser is recursive, and its time grows with the square of the depth."""


def load_yaml(path: Path) -> Mapping[str, Any]:
    """The table in a YAML file.

    Raises:
        ValueError: The file is missing, no YAML, or no table; one line.
    """
    import yaml  # an extra; the simulator and the readers work without it

    try:
        text = _text(path)
        _check_depth(text, path)
        table = yaml.safe_load(text)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    except _Refused:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: must be YAML: {' '.join(str(error).split())}") from None
    if not isinstance(table, dict):
        raise ValueError(f"{path}: must hold a table, got {type(table).__name__}")
    _check_extent(table, path)
    return table


class _Refused(ValueError):
    """What is YAML, and too much of it."""


def _text(path: Path) -> str:
    if path.is_fifo():  # would wait for a writer
        raise _Refused(f"{path}: must be a file, got a pipe")
    with path.open("rb") as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise _Refused(f"{path}: must have at most {_MOST_BYTES} bytes, got more")
    return raw.decode("utf-8")


def _check_depth(text: str, path: Path) -> None:
    """Count open lists and tables token by token, before anything recursive sees them."""
    import yaml

    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        kind = type(token).__name__
        if kind.endswith(("SequenceStartToken", "MappingStartToken")):
            depth += 1
        elif kind.endswith(("SequenceEndToken", "MappingEndToken", "BlockEndToken")):
            depth -= 1
        if depth > _DEEPEST:
            raise _Refused(f"{path}: must nest at most {_DEEPEST} lists and tables, got more")


def _check_extent(table: object, path: Path) -> None:
    """Refuse aliases that unfold without end: messages would spell them out."""
    open_ends, left = [table], _MOST_ENTRIES
    while open_ends:
        left -= 1
        if left < 0:
            raise ValueError(f"{path}: must hold at most {_MOST_ENTRIES} entries, aliases unfolded")
        value = open_ends.pop()
        if isinstance(value, Mapping):
            open_ends += [*value, *value.values()][:left]
        elif isinstance(value, (list, tuple, set)):
            open_ends += [*value][:left]


def check_keys(
    table: Mapping[str, Any], known: Sequence[str], place: object, prefix: str = ""
) -> None:
    """Refuse a key that nothing reads, naming the nearest one that something does."""
    for key in table:
        if key in known:
            continue
        near = difflib.get_close_matches(str(key), known, 1)
        way = f"write {prefix}{near[0]}" if near else "remove it"
        raise ValueError(f"{place}: entries must be among {list(known)}, got {prefix}{key}; {way}")


class Table:
    """One table of a file; each method reads one entry and refuses what it cannot be.

    Args:
        table: The entries.
        known: The keys that may occur.
        place: The file, for messages.
        prefix: Where in the file, as ``"loss."``.
    """

    def __init__(
        self, table: Mapping[str, Any], known: Sequence[str], place: object, prefix: str = ""
    ) -> None:
        check_keys(table, known, place, prefix)
        self.entries, self.place, self.prefix = table, place, prefix

    def fail(self, key: str, wanted: str) -> ValueError:
        """The error for an entry that is not what is wanted."""
        got = repr(self.entries[key]) if key in self.entries else "none"
        return ValueError(f"{self.place}: {self.prefix}{key} must be {wanted}, got {got}")

    def refuse(self, keys: Sequence[str], why: str) -> None:
        """Refuse entries that would have no effect; ``why`` ends the sentence ("for kind x")."""
        for key in keys:
            if key in self.entries:
                raise self.fail(key, f"left out {why}")

    def table(self, key: str, known: Sequence[str]) -> Table:
        """A table within; an empty one where there is none."""
        inner = self.entries.get(key, {})
        if not isinstance(inner, dict):
            raise self.fail(key, "a table")
        return Table(inner, known, self.place, f"{self.prefix}{key}.")

    def number(self, key: str, default: float | None, low: float, high: float) -> float:
        """A number within bounds."""
        value = _plain(self.entries.get(key, default))
        if value is None or not low <= value <= high:
            raise self.fail(key, f"a number from {low:g} to {high:g}")
        return value

    def whole(self, key: str, default: int | None, low: int, high: int = 2**31 - 1) -> int:
        """A whole number within bounds."""
        value = self.entries.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            wanted = f"a whole number from {low}" + (f" to {high}" if high < 2**31 - 1 else "")
            raise self.fail(key, wanted)
        return value

    def numbers(
        self, key: str, default: Sequence[float] | None, low: float, high: float
    ) -> tuple[float, ...]:
        """Numbers within bounds, as many as the default has (any number where it has none)."""
        value = self.entries.get(key, default)
        count = len(default) if default else None
        found = [_plain(v) for v in value] if isinstance(value, list | tuple) else [None]
        good = tuple(v for v in found if v is not None and low <= v <= high)
        if len(good) != len(found) or count not in (None, len(good)):
            many = f"{count} numbers" if count else "a list of numbers"
            raise self.fail(key, f"{many} from {low:g} to {high:g}")
        return good

    def choice(self, key: str, default: str | None, choices: Sequence[str]) -> str:
        """One of a few words."""
        value = self.entries.get(key, default)
        if value not in choices:
            raise self.fail(key, f"one of {list(choices)}")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.entries.get(key, default)
        if not isinstance(value, bool):
            raise self.fail(key, "true or false")
        return value

    def text(self, key: str, default: str | None) -> str:
        """A word or path."""
        value = self.entries.get(key, default)
        if not isinstance(value, str) or not value:
            raise self.fail(key, "a text")
        return value


def _plain(value: object) -> float | None:
    """A finite number, or None. YAML 1.1 takes 1e-3 for a text; people mean a number."""
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)
