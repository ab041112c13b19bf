"""`cumm.gemm.codeops`: helpers on numbers and lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["div_up", "group_by"]

Key = TypeVar("Key")
Item = TypeVar("Item")


def div_up(a: int, b: int) -> int:
    """The quotient, rounded up."""
    return -(-a // b)


def group_by(key_func: Callable[[Item], Key], data_iter: Iterable[Item]) -> dict[Key, list[Item]]:
    """Items by key, keys in order of first occurrence."""
    made: dict[Key, list[Item]] = {}
    for item in data_iter:
        made.setdefault(key_func(item), []).append(item)
    return made
